"""Dry runs: whoever waits for one hears how it went, also when it does not come about."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from client_hall import Hall

from laser_vfl.client import participation as participation_module
from laser_vfl.client.attendance import RunLost
from laser_vfl.client.listing import Keys
from laser_vfl.client.participation import Means, Participation
from laser_vfl.client.session import RunStopped, Welcome
from laser_vfl.core.errors import (
    AlignmentOver,
    AlignmentRefused,
    ContractError,
    DataError,
    LaserError,
    MismatchError,
    NotReady,
    NotRegistered,
    TrainingStopped,
)
from laser_vfl.core.purpose import Purpose


class Session:
    """Takes the wish for a dry run, or does not."""

    def __init__(self, problem=None, number=0):
        self._problem = problem
        self._number = number

    async def dry_run(self):
        if self._problem is not None:
            raise self._problem
        return self._number


def participation(outcome=None, session=None):
    """A client whose alignments end as told."""

    class Aligning(Participation):
        async def _align(self, call):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    config = SimpleNamespace(name="bank", connect_timeout_s=1.0)
    means = Means(
        config=config,
        own=None,
        device=None,
        credentials=None,
        state=SimpleNamespace(unfinished_run=lambda: ""),
        session=session or Session(),
        serving=None,
        peer_server=None,
        reception=None,
        aligner=None,
        keys=Keys(b"digest", b"order"),
        forgotten=None,
        audit=None,
        address="bank:1",
    )
    return Aligning(means, None)


def call(purpose):
    async def make():
        return Hall(("bank",), purpose=purpose).call

    return asyncio.run(make())


DRY_RUN = call(Purpose.DRY_RUN)


def outcome_of(part, *purposes):
    """Wait for two dry runs while alignments take place; return what each heard."""

    async def run():
        waiting = [asyncio.create_task(part.dry_run()) for _ in range(2)]
        await asyncio.sleep(0)
        for attended in purposes:
            await asyncio.gather(part.attend(attended), return_exceptions=True)
        async with asyncio.timeout(1):
            return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(run())


def test_all_who_wait_get_the_outcome():
    aligned = object()
    part = participation(aligned)
    assert outcome_of(part, DRY_RUN) == [aligned, aligned]
    assert not part._dry_runs.wishes


@pytest.mark.parametrize(
    "problem",
    [
        AlignmentRefused("shop refuses because of club"),
        DataError("no such column"),
        ContractError("the coordinator does not place each of our rows once"),
        NotRegistered("the coordinator does not know this process"),
        TrainingStopped("alignments.json cannot be written"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_all_who_wait_hear_what_went_wrong(problem):
    part = participation(problem)
    heard = outcome_of(part, DRY_RUN)
    assert all(isinstance(error, LaserError) for error in heard)
    assert not part._dry_runs.wishes


def test_an_alignment_that_is_begun_anew_is_waited_for():
    part = participation(AlignmentOver("lost shop"))

    async def run():
        waiting = asyncio.create_task(part.dry_run())
        await asyncio.sleep(0)
        await asyncio.gather(part.attend(DRY_RUN), return_exceptions=True)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not part._dry_runs.wishes

    asyncio.run(run())


def test_an_alignment_from_before_the_wish_is_no_answer():
    part = participation(AlignmentRefused("shop refuses because of club"), Session(number=5))

    async def run():
        waiting = asyncio.create_task(part.dry_run())
        await asyncio.sleep(0)
        for number, is_answer in ((4, False), (5, True)):
            attended = replace(DRY_RUN, number=number)
            await asyncio.gather(part.attend(attended), return_exceptions=True)
            await asyncio.sleep(0)
            assert waiting.done() == is_answer
        with pytest.raises(AlignmentRefused):
            await waiting

    asyncio.run(run())


def test_an_answer_may_be_there_before_the_wish_is_confirmed():
    aligned = object()

    class Slow(Session):
        async def dry_run(self):
            await part.attend(replace(DRY_RUN, number=5))
            return 5

    part = participation(aligned, Slow())

    async def run():
        async with asyncio.timeout(1):
            assert await part.dry_run() is aligned

    asyncio.run(run())


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_refusal_is_heard_without_the_call_also_before_the_wish_is_confirmed(is_before):
    """The call to the fifth was over before this client had done with the fourth."""

    class Slow(Session):
        async def dry_run(self):
            if is_before:
                part.hear_refused(4, "no")
                part.hear_refused(5, "no\nagain")
            return 5

    part = participation(AlignmentRefused("no"), Slow())

    async def run():
        waiting = asyncio.create_task(part.dry_run())
        await asyncio.sleep(0)
        if not is_before:
            await asyncio.gather(part.attend(replace(DRY_RUN, number=4)), return_exceptions=True)
            part.hear_refused(4, "no")
            await asyncio.sleep(0)
            assert not waiting.done()
            part.hear_refused(5, "no\nagain")
        async with asyncio.timeout(1):
            with pytest.raises(AlignmentRefused, match=r"no.*again") as refused:
                await waiting
        assert str(refused.value).isprintable()

    asyncio.run(run())


def test_an_alignment_for_something_else_is_no_dry_run():
    part = participation(SimpleNamespace(naming=None))

    async def run():
        waiting = asyncio.create_task(part.dry_run())
        await asyncio.sleep(0)
        for purpose in (Purpose.RUN, Purpose.NEWCOMERS):
            await part.attend(Hall(("bank",), purpose=purpose).call)
            assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(run())


def test_a_wish_that_is_not_granted_is_not_waited_for():
    part = participation(session=Session(NotReady("a run is under way")))
    assert [type(error) for error in outcome_of(part)] == [NotReady, NotReady]
    assert not part._dry_runs.wishes


def test_what_a_client_does_is_said_while_it_aligns():
    part = participation(DataError("no such column"))
    part.activity = "idle"
    asyncio.run(asyncio.wait_for(_attend(part), 1))
    assert part.activity == "idle"


async def _attend(part):
    with pytest.raises(DataError):
        await part.attend(DRY_RUN)


def welcome(*roster, scheme="ecdh"):
    return Welcome(1, roster, None, scheme)


@pytest.mark.parametrize("roster", [("bank", "hub"), ("shop", "bank"), ("bank", "shop", "club")])
def test_a_client_that_knows_its_roster_joins_no_other(roster):
    part = participation()
    part._means.config.roster = ["bank", "shop"]
    part._means.config.where = lambda key: f"bank.yaml: {key}"
    part._means.config.id_secret_file = None
    with pytest.raises(MismatchError, match="the coordinator's clients are"):
        asyncio.run(part.accept(welcome(*roster)))


def test_newcomers_are_not_named_by_a_roster_that_has_changed():
    """The bits of groups would mean other clients than those of the model."""
    part = Participation(participation()._means, None)
    attended = call(Purpose.NEWCOMERS)
    known = SimpleNamespace(run=attended.run, members=attended.names)
    edition = SimpleNamespace(naming=known, model=SimpleNamespace(roster=("bank", "shop")))
    means = replace(part._means, serving=SimpleNamespace(current=edition))
    part._means, part.roster = means, ("bank", "museum", "shop")
    with pytest.raises(DataError, match="the roster has changed"):
        asyncio.run(part.attend(attended))


@pytest.mark.parametrize(("stopped", "ended"), [("run-1", ["run-1"]), ("run-2", [])])
def test_who_is_barred_from_a_run_does_not_try_to_come_back_to_it(stopped, ended, monkeypatch):
    part, found = participation(), []
    part._comeback.run = "run-1"
    progress = SimpleNamespace(reset=lambda checkpoints: None)
    state = SimpleNamespace(end_run=found.append, run_directory=lambda run: Path("nowhere"))
    part._comeback._state = state
    part._means = replace(
        part._means,
        session=SimpleNamespace(progress=progress),
        serving=SimpleNamespace(current=None),
    )

    async def join(*_):
        raise RunStopped("it broke the contract", run=stopped)

    monkeypatch.setattr(participation_module, "join", join)
    with pytest.raises(RunStopped):
        asyncio.run(part._take_part())
    assert found == ended
    assert part.unfinished_run == ("" if ended else "run-1")


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (RunLost("the coordinator does not know this run any more"), ["run-1"]),
        (DataError("a checkpoint has other tensors than the models"), []),
    ],
    ids=["the run is gone", "the models are not those of the checkpoint"],
)
def test_what_is_kept_of_a_run_stays_when_only_this_client_is_wrong(error, ended, monkeypatch):
    """A mistake in its configuration can be mended, and then it can come back."""
    part, found = participation(), []
    part._comeback.run = "run-1"
    part._comeback._state = SimpleNamespace(end_run=found.append)
    progress = SimpleNamespace(starts_phase=lambda: None, members=())
    part._means = replace(
        part._means,
        session=SimpleNamespace(progress=progress),
        state=SimpleNamespace(has_model=lambda run: False),
        audit=SimpleNamespace(note=lambda *_, **__: None),
    )
    joined = SimpleNamespace(record=SimpleNamespace(run="run-1"), is_new=False, members=())

    async def join(*_):
        return joined

    async def attend(work):
        raise error

    monkeypatch.setattr(participation_module, "join", join)
    monkeypatch.setattr(part, "_build_work", lambda record: SimpleNamespace())
    monkeypatch.setattr(part, "_attend_run", attend)
    asyncio.run(part._join_and_train())
    assert found == ended
    assert (part.unfinished_run, part._retry) == ("", True)
