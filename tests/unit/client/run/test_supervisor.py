"""Dry runs: whoever waits for one hears how it went, also when it does not come about."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from laser_vfl.client.config import RequireConfig
from laser_vfl.client.run import supervisor
from laser_vfl.client.run.activity import IDLE, Activity
from laser_vfl.client.run.own_alignments import OwnAlignments
from laser_vfl.client.run.resumable_run import ResumableRun
from laser_vfl.client.run.run_checks import RunChecks
from laser_vfl.client.run.run_member import RunLost
from laser_vfl.client.run.run_training import RunTraining
from laser_vfl.client.run.supervisor import RunSupervisor
from laser_vfl.client.session.coordinator_session import RegistrationReply, RunStopped
from laser_vfl.client.session.progress import Progress
from laser_vfl.core.alignment_purpose import AlignmentPurpose
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
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.fakes.local_alignment import LocalAlignment


class Session:
    """Takes the request for a dry run, or refuses it."""

    def __init__(self, problem=None, number=0):
        self._problem = problem
        self._number = number

    async def dry_run(self):
        if self._problem is not None:
            raise self._problem
        return self._number


class Alignments:
    """All of them end as told."""

    def __init__(self, outcome):
        self._outcome = outcome

    async def prepare(self):
        pass

    async def attend(self, call, scheme, roster):
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class State:
    """Where nothing is kept yet."""

    def __init__(self):
        self.ended = []
        self.threads = []

    def unfinished_run(self):
        return ""

    def run_directory(self, run):
        return Path("nowhere")

    def drop_failed_runs(self, but=""):
        pass

    def end_run(self, run):
        self.ended.append(run)
        self.threads.append(threading.current_thread())


class Spent:
    """A ledger that says no from a number of runs on."""

    def __init__(self, most=100):
        self._most = most
        self.charged = []

    def has(self, run):
        return run in self.charged

    def check_possible(self, settings):
        pass

    def check(self, settings):
        if len(self.charged) >= self._most:
            raise TrainingStopped("epsilon would be too much")

    def charge(self, run, settings, *, is_new):
        self.check(settings)
        self.charged.append(run)


def supervisor_with(
    outcome=None, session=None, state=None, alignments=None, spent=None, trainers=None, network=None
):
    """A client whose alignments end as told."""
    session = session or Session()
    config = SimpleNamespace(
        name="bank",
        connect_timeout_s=1.0,
        require=RequireConfig(),
        required_roster=None,
        id_secret_file=None,
        where=lambda key: f"bank.yaml: {key}",
    )
    audit = SimpleNamespace(note=lambda *_, **__: None)
    part = RunSupervisor(
        config,
        session=session,
        tables=SimpleNamespace(block=None),
        alignments=alignments or Alignments(outcome),
        checks=RunChecks(config, spent or Spent()),
        training=RunTraining(config, trainers, session, network, Progress(), audit),
        resumable=ResumableRun(state or State()),
        serving=SimpleNamespace(current=None, is_trained=False),
    )
    part._settings = object()  # as if it had registered
    return part


def call(purpose):
    async def make():
        return LocalAlignment(("bank",), purpose=purpose).call

    return asyncio.run(make())


DRY_RUN = call(AlignmentPurpose.DRY_RUN)


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
    part = supervisor_with(aligned)
    assert outcome_of(part, DRY_RUN) == [aligned, aligned]
    assert not part._dry_runs.requests


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
    part = supervisor_with(problem)
    heard = outcome_of(part, DRY_RUN)
    assert all(isinstance(error, LaserError) for error in heard)
    assert not part._dry_runs.requests


def test_an_alignment_that_is_begun_anew_is_waited_for():
    part = supervisor_with(AlignmentOver("lost shop"))

    async def run():
        waiting = asyncio.create_task(part.dry_run())
        await asyncio.sleep(0)
        await asyncio.gather(part.attend(DRY_RUN), return_exceptions=True)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not part._dry_runs.requests

    asyncio.run(run())


def test_an_alignment_from_before_the_request_is_no_answer():
    part = supervisor_with(AlignmentRefused("shop refuses because of club"), Session(number=5))

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


def test_an_answer_may_be_there_before_the_request_is_confirmed():
    aligned = object()

    class Slow(Session):
        async def dry_run(self):
            await part.attend(replace(DRY_RUN, number=5))
            return 5

    part = supervisor_with(aligned, Slow())

    async def run():
        async with asyncio.timeout(1):
            assert await part.dry_run() is aligned

    asyncio.run(run())


@pytest.mark.parametrize("is_asking", [True, False], ids=["asking", "not yet asking"])
def test_the_own_reason_is_told_and_not_what_others_may_know_of_it(is_asking):
    """The alignment fails here, and then everybody is told that it did."""

    async def fail():
        attended = replace(DRY_RUN, number=5)
        await asyncio.gather(part.attend(attended), return_exceptions=True)

    class Slow(Session):
        async def dry_run(self):
            if is_asking:
                await fail()
            part.hear_refused(5, "its tables cannot be used")
            return 5

    part = supervisor_with(DataError("bank_train.csv: the same id twice"), Slow())

    async def run():
        if not is_asking:
            await fail()
        async with asyncio.timeout(1):
            with pytest.raises(DataError, match="the same id twice"):
                await part.dry_run()

    asyncio.run(run())


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
def test_a_refusal_is_heard_without_the_call_also_before_the_request_is_confirmed(is_before):
    """The call to the fifth was over before this client had done with the fourth."""

    class Slow(Session):
        async def dry_run(self):
            if is_before:
                part.hear_refused(4, "no")
                part.hear_refused(5, "no\nagain")
            return 5

    part = supervisor_with(AlignmentRefused("no"), Slow())

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
    part = supervisor_with(SimpleNamespace(pseudonyms=None))

    async def run():
        waiting = asyncio.create_task(part.dry_run())
        await asyncio.sleep(0)
        for purpose in (AlignmentPurpose.RUN, AlignmentPurpose.UNALIGNED_IDS):
            await part.attend(LocalAlignment(("bank",), purpose=purpose).call)
            assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(run())


def test_a_request_that_is_not_granted_is_not_waited_for():
    part = supervisor_with(session=Session(NotReady("a run is under way")))
    assert [type(error) for error in outcome_of(part)] == [NotReady, NotReady]
    assert not part._dry_runs.requests


def test_what_a_client_does_is_said_while_it_aligns():
    part = supervisor_with(DataError("no such column"))
    part.now = IDLE
    asyncio.run(asyncio.wait_for(_attend(part), 1))
    assert part.now == IDLE


@pytest.mark.parametrize("is_trained", [True, False], ids=["with a model", "without one"])
@pytest.mark.parametrize(
    ("state", "activity", "label"),
    [
        (pb.REQUEST_STATE_UNSPECIFIED, Activity.IDLE, "idle"),
        (pb.REQUEST_STATE_REJECTED, Activity.IDLE, "idle"),
        (pb.REQUEST_STATE_PENDING, Activity.AWAITING_APPROVAL, "awaiting_approval"),
    ],
)
def test_a_client_that_waits_for_a_run_is_not_unable_to_take_part(
    state, activity, label, is_trained
):
    """The metric was read off the sentence: 'no model; waiting for a run' counted as unable."""
    part = supervisor_with()
    part._tables.mark_stale = lambda: None
    part._serving.is_trained = is_trained
    part.hear_own_request(state)
    assert part.now.activity is activity
    assert part.now.activity.value == label
    assert part.activity_text.startswith("no model; ") == (not is_trained)


async def _attend(part):
    with pytest.raises(DataError):
        await part.attend(DRY_RUN)


def welcome(*roster, scheme="ecdh"):
    return RegistrationReply(1, roster, None, scheme)


@pytest.mark.parametrize("roster", [("bank", "hub"), ("shop", "bank"), ("bank", "shop", "club")])
def test_a_client_that_knows_its_roster_joins_no_other(roster):
    part = supervisor_with()
    part._config.required_roster = ("roster", ("bank", "shop"))
    with pytest.raises(MismatchError, match="the coordinator's clients are"):
        asyncio.run(part.accept(welcome(*roster)))


def test_a_run_that_was_begun_on_other_settings_than_are_required_now_is_not_come_back_to():
    part = supervisor_with()
    part._resumable.run = "run-1"
    part._config.require = RequireConfig(max_epochs=2)
    settings = SimpleNamespace(epochs=3)
    record = SimpleNamespace(settings=settings, scheme="ecdh", roster=("bank", "shop"))

    async def read():
        return record

    part._resumable.read = read
    assert asyncio.run(part.recall("run-1")) is None
    assert part.unfinished_run == ""


def test_a_client_that_has_spent_its_epsilon_aligns_for_no_run_whoever_calls():
    """A coordinator may call without having heard that this client is prepared."""
    part = supervisor_with(object(), spent=Spent(most=0))
    with pytest.raises(TrainingStopped, match="too much"):
        asyncio.run(part.attend(call(AlignmentPurpose.RUN)))
    asyncio.run(part.attend(DRY_RUN))
    assert part.now.activity is not Activity.ALIGNING


@pytest.mark.parametrize("is_resumable", [True, False], ids=["comes back", "begins"])
def test_without_a_model_a_client_ends_unless_it_comes_back_to_a_run_that_is_counted(is_resumable):
    spent = Spent(most=1)
    spent.charged = ["run-1"]
    part = supervisor_with(
        spent=spent,
        trainers=SimpleNamespace(check=lambda *_: None),
        network=SimpleNamespace(expect=nothing),
    )
    part._resumable.run = "run-1" if is_resumable else ""
    if is_resumable:
        asyncio.run(part.accept(welcome("bank", "shop")))
    else:
        with pytest.raises(TrainingStopped, match="too much"):
            asyncio.run(part.accept(welcome("bank", "shop")))


async def nothing(*_):
    pass


def test_unaligned_ids_are_not_named_by_a_roster_that_has_changed():
    """The bits of groups would mean other clients than those of the model."""
    attended = call(AlignmentPurpose.UNALIGNED_IDS)
    known = SimpleNamespace(run=attended.run, members=attended.names)
    served = SimpleNamespace(pseudonyms=known, model=SimpleNamespace(roster=("bank", "shop")))
    serving = SimpleNamespace(current=served, is_trained=True)
    alignments = OwnAlignments(None, None, None, serving, None)
    with pytest.raises(DataError, match="the roster has changed"):
        asyncio.run(alignments.attend(attended, "ecdh", ("bank", "museum", "shop")))


def test_an_alignment_of_unaligned_ids_hears_who_is_in_the_tables():
    """So that it can tell a point of one of them from that of somebody new."""
    heard = []

    async def align(*given):
        heard.append(given)

    attended = call(AlignmentPurpose.UNALIGNED_IDS)
    known = SimpleNamespace(run=attended.run, members=attended.names)
    parts = [SimpleNamespace(digests=object()), SimpleNamespace(digests=object())]
    served = SimpleNamespace(
        pseudonyms=known,
        model=SimpleNamespace(roster=("bank", "shop")),
        row_index=SimpleNamespace(people=parts),
    )
    serving = SimpleNamespace(current=served, unaligned_ids=list)
    alignments = OwnAlignments(SimpleNamespace(align=align), None, None, serving, None)
    asyncio.run(alignments.attend(attended, "ecdh", ("bank", "shop")))
    [(*_, present)] = heard
    assert present == [part.digests for part in parts]


@pytest.mark.parametrize(("stopped", "ended"), [("run-1", ["run-1"]), ("run-2", [])])
def test_who_is_barred_from_a_run_does_not_try_to_come_back_to_it(stopped, ended, monkeypatch):
    state = State()
    part = supervisor_with(state=state)
    part._resumable.run = "run-1"

    async def join(*_):
        raise RunStopped("it broke the contract", run=stopped)

    monkeypatch.setattr(supervisor, "join", join)
    with pytest.raises(RunStopped):
        asyncio.run(part._take_part())
    assert state.ended == ended
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
    state = State()
    trainers = SimpleNamespace(trainer=lambda *_, **__: None)
    part = supervisor_with(state=state, trainers=trainers)
    part._resumable.run = "run-1"
    record = SimpleNamespace(run="run-1", settings=object())
    joined = SimpleNamespace(record=record, is_new=False, members=())

    async def join(*_):
        return joined

    async def train(trainer, members):
        raise error

    monkeypatch.setattr(supervisor, "join", join)
    monkeypatch.setattr(part, "_train", train)
    asyncio.run(part._join_and_train())
    assert state.ended == ended
    assert (part.unfinished_run, part._retry) == ("", True)


def test_nothing_is_kept_of_a_run_that_others_could_not_start():
    """Somebody who aligns and leaves, again and again, must not fill anybody's disk."""
    state, given_back = State(), []
    alignments = SimpleNamespace(give_back=lambda: given_back.append(True))
    part = supervisor_with(state=state, alignments=alignments)
    part._resumable.run = "run-1"
    asyncio.run(part.run_given_up())
    assert state.ended == ["run-1"]
    assert given_back == [True]
    assert part.unfinished_run == ""


def test_models_are_built_beside_the_event_loop():
    """Building a large model takes seconds, in which peers and the coordinator need answers."""
    threads = []

    async def expect(settings, num_clients):
        threads.append(threading.current_thread())

    def check(reply, block):
        threads.append(threading.current_thread())

    part = supervisor_with(
        network=SimpleNamespace(expect=expect), trainers=SimpleNamespace(check=check)
    )
    asyncio.run(part.accept(welcome("bank", "shop")))
    building, serving = threads
    assert serving is threading.main_thread()
    assert building is not threading.main_thread()


def test_what_is_kept_of_a_run_is_removed_beside_the_event_loop():
    state = State()
    part = supervisor_with(state=state)
    part._resumable.run = "run-1"
    asyncio.run(part._resumable.end())
    assert state.ended == ["run-1"]
    assert state.threads != [threading.main_thread()]
    assert part.unfinished_run == ""
