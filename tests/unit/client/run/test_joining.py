"""On the way into a run: an alignment that fails here or elsewhere is not the end of the daemon."""

import asyncio
from dataclasses import replace

import pytest

from laser_vfl.client.run.joining import Joined, RunRequest, join
from laser_vfl.client.session.coordinator_session import RegistrationReply
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import (
    AlignmentOver,
    AlignmentRefused,
    ContractError,
    DataError,
    LimitExceeded,
    TrainingStopped,
)
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.v1 import coordinator_pb2 as pb

ROSTER = ("bank", "shop")
MAX_REASON = 300
"""What the coordinator takes for a reason."""


def called(id, purpose=pb.PURPOSE_RUN):
    members = [
        pb.AlignmentMember(client=name, incarnation=number, address=f"{name}:1")
        for number, name in enumerate(ROSTER, start=1)
    ]
    call = pb.AlignmentCall(id=id, run=id, purpose=purpose, members=members)
    return pb.Directive(gathering=pb.Gathering(wanted=True, call=call))


SETTINGS = TrainingSettings(representation_dim=4, batch_size=4, epochs=1)


def record(run):
    """What a client keeps of a run."""
    tables = {table: ClientAlignment((Group(3, 1),), {0: [0]}) for table in ("train", "test")}
    return RunRecord(run, ROSTER, "ecdh", SETTINGS, (), tables, "")


def gathering(run):
    return pb.Directive(gathering=pb.Gathering(run=run, wanted=True))


def training(run):
    """What is told once a run is under way; its seed is not that of the settings."""
    return pb.Directive(training=pb.Training(view=pb.View(run=run, seed=42, heads=["shop"])))


STOPPED = pb.Directive(stopped=pb.Stopped(run="run-1", reason="that is all for today"))


class Session:
    """Gives one directive after the other, each when the one before asks for nothing any more."""

    retry_s = 0.01

    def __init__(self, *directives, on_refusal=None):
        self.refusals = []
        self.reports = []
        self.opened_with = []
        self._directives = list(directives)
        self._on_refusal = on_refusal

    async def register(self, *, wants_run):
        return RegistrationReply(1, ROSTER, SETTINGS, "ecdh")

    def open(self, run=""):
        self.opened_with.append(run)

    async def close(self, reason=""):
        pass

    def report(self, **status):
        self.reports.append(status)

    async def directive(self, wanted):
        while not wanted(self._directives[0]):
            await asyncio.sleep(0)
            self._directives.pop(0)
        return self._directives[0]

    async def refuse(self, alignment, peer, reason, *, unreachable):
        self.refusals.append((alignment, peer, reason, unreachable))
        if len(reason) > MAX_REASON or not reason.isprintable():
            raise ContractError("that cannot be a reason")
        if self._on_refusal is not None:
            raise self._on_refusal


class JoinHooks:
    """Takes part in alignments as the test says, and has the record of a run or not."""

    def __init__(self, *outcomes, record=None):
        self.attended = []
        self.refused = []
        self.num_given_up = 0
        self.num_unwanted = 0
        self._outcomes = list(outcomes)
        self._record = record

    @property
    def unfinished_run(self):
        return self._record.run if self._record else ""

    async def accept(self, welcome):
        pass

    async def prepare(self):
        pass

    async def attend(self, call):
        self.attended.append(call.id)
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def hear_refused(self, number, reason):
        self.refused.append((number, reason))

    def run_unwanted(self):
        self.num_unwanted += 1

    def hear_own_request(self, state):
        pass

    async def run_given_up(self):
        self.num_given_up += 1

    async def keep(self, aligned, settings):
        return record(aligned)

    async def recall(self, run):
        return self._record if run == self.unfinished_run else None


def join_until_stopped(session, hooks):
    async def run():
        async with asyncio.timeout(5):
            await join(session, "bank", hooks, RunRequest(wants_run=True, patience_s=1.0))

    with pytest.raises(TrainingStopped, match="all for today"):
        asyncio.run(run())


TWO = (called("alignment-1"), called("alignment-2"), STOPPED)


@pytest.mark.parametrize(
    "ending", [AlignmentOver("lost shop"), AlignmentRefused("shop refuses because of club")]
)
def test_after_an_alignment_that_ended_the_next_one_is_attended(ending):
    session, hooks = Session(*TWO), JoinHooks(ending, ending)
    join_until_stopped(session, hooks)
    assert hooks.attended == ["alignment-1", "alignment-2"]
    assert not session.refusals


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (
            DataError("no such column"),
            "its tables cannot be used as they are; see its log (code 3)",
        ),
        (
            LimitExceeded("enough today"),
            "it has reached a limit of its own; see its log (code 8)",
        ),
    ],
    ids=["its own tables are nobody's business", "enough"],
)
def test_what_is_wrong_here_is_told_and_nobody_else_is_blamed(problem, told):
    session, hooks = Session(*TWO), JoinHooks(problem, problem)
    join_until_stopped(session, hooks)
    assert session.refusals == [(f"alignment-{number}", "bank", told, False) for number in (1, 2)]


@pytest.mark.parametrize(
    "message", ["x" * 1000, "a line\nand another", "columns " + "\u200b" * 3], ids=range(3)
)
def test_whatever_is_wrong_here_can_be_told(message):
    """A reason that the coordinator does not take must not end the daemon."""
    session, hooks = Session(*TWO), JoinHooks(LimitExceeded(message), LimitExceeded(message))
    join_until_stopped(session, hooks)
    assert hooks.attended == ["alignment-1", "alignment-2"]
    for _, peer, reason, _ in session.refusals:
        assert peer == "bank"
        assert len(reason) <= MAX_REASON
        assert reason.isprintable()


def test_a_dry_run_that_was_refused_before_its_call_came_is_heard_of_once():
    def refused(directive, number):
        told = pb.Directive()
        told.CopyFrom(directive)
        told.gathering.refused.number, told.gathering.refused.reason = number, f"no {number}"
        return told

    idle = pb.Directive(gathering=pb.Gathering())
    directives = [refused(idle, 2), refused(idle, 2), refused(called("alignment-3"), 2)]
    directives += [refused(idle, 4), called("alignment-5"), STOPPED]
    session = Session(*directives)
    hooks = JoinHooks(AlignmentOver("lost shop"), AlignmentOver("lost shop"))
    join_until_stopped(session, hooks)
    assert hooks.refused == [(2, "no 2"), (4, "no 4")]
    assert hooks.attended == ["alignment-3", "alignment-5"]


def test_a_refused_dry_run_is_no_reason_to_give_up_the_run_that_is_about_to_start():
    told = gathering("run-1")
    told.gathering.refused.number = 1
    session, hooks = Session(called("run-1"), told, training("run-1")), JoinHooks("run-1")

    async def run():
        async with asyncio.timeout(5):
            return await join(session, "bank", hooks, RunRequest(wants_run=True, patience_s=1.0))

    assert asyncio.run(run()).is_new
    assert {"state": pb.CLIENT_STATE_JOINING, "run": ""} not in session.reports


def test_an_alignment_may_be_over_before_this_client_can_refuse_it():
    session = Session(*TWO, on_refusal=AlignmentOver("not under way any more"))
    hooks = JoinHooks(DataError("no such column"), DataError("no such column"))
    join_until_stopped(session, hooks)
    assert hooks.attended == ["alignment-1", "alignment-2"]


def test_the_reason_that_others_hear_has_no_path():
    problem = DataError("the table has no rows", where="/home/bank/secret.csv", hint="add some")
    session, hooks = Session(*TWO), JoinHooks(problem, problem)
    join_until_stopped(session, hooks)
    assert "/home" not in str(session.refusals)


def test_a_call_that_makes_no_sense_is_not_followed():
    call = called("alignment-1")
    call.gathering.call.members[0].client = "thief"
    hooks = JoinHooks()

    async def run():
        async with asyncio.timeout(5):
            await join(Session(call), "bank", hooks, RunRequest(wants_run=True, patience_s=1.0))

    with pytest.raises(ContractError):
        asyncio.run(run())
    assert not hooks.attended


def joined(session, hooks):
    async def run():
        async with asyncio.timeout(5):
            return await join(session, "bank", hooks, RunRequest(wants_run=True, patience_s=1.0))

    return asyncio.run(run())


def with_view(kept):
    """The record of a run once the coordinator has said with which seed and heads it goes."""
    settings = SETTINGS.model_copy(update={"seed": 42})
    return replace(kept, settings=settings, heads=("shop",))


def test_the_run_that_it_was_aligned_for_begins_with_the_seed_and_heads_of_its_view():
    session = Session(called("run-1"), gathering("run-1"), training("run-1"))
    assert joined(session, JoinHooks("run-1")) == Joined(with_view(record("run-1")), is_new=True)
    assert session.opened_with == [""]
    assert {"state": pb.CLIENT_STATE_READY, "run": "run-1"} in session.reports


def test_a_restarted_client_comes_back_to_its_run():
    session, kept = Session(training("run-1")), record("run-1")
    assert joined(session, JoinHooks(record=kept)) == Joined(with_view(kept), is_new=False)
    assert session.opened_with == ["run-1"]


def test_a_run_that_finished_without_it_is_still_its_own():
    session, kept = Session(pb.Directive(finished=pb.Finished(run="run-1"))), record("run-1")
    assert joined(session, JoinHooks(record=kept)) == Joined(kept, is_new=False)


def test_a_run_of_which_it_has_nothing_is_not_joined():
    session = Session(training("run-0"), STOPPED)
    join_until_stopped(session, JoinHooks(record=record("run-1")))
    assert session.reports == [{"run": ""}]


def test_somebody_lost_before_the_start_means_another_alignment():
    session = Session(
        called("run-1"), gathering("run-1"), called("run-2"), gathering("run-2"), training("run-2")
    )
    hooks = JoinHooks("run-1", "run-2")
    assert joined(session, hooks).record.run == "run-2"
    assert hooks.attended == ["run-1", "run-2"]
    assert {"state": pb.CLIENT_STATE_JOINING, "run": ""} in session.reports
    assert hooks.num_given_up == 1, "it hears that its alignment came to nothing"


def test_a_client_that_came_back_too_often_waits_as_long_as_it_is_told():
    class Busy(Session):
        refusals_left = 3

        async def register(self, *, wants_run):
            if self.refusals_left:
                self.refusals_left -= 1
                raise LimitExceeded("too many of these calls", retry_after_s=0.01)
            return await super().register(wants_run=wants_run)

    session = Busy(training("run-1"))
    joined = asyncio.run(
        join(session, "bank", JoinHooks(record=record("run-1")), RunRequest(False, 0.0))
    )
    assert joined.record.run == "run-1"
    assert not session.refusals_left


def test_a_run_that_was_cancelled_is_waited_for_again():
    pending = pb.REQUEST_STATE_PENDING
    cancelled = pb.Directive(gathering=pb.Gathering(own_request=pending))
    session = Session(called("alignment-1"), cancelled, cancelled, called("alignment-2"), STOPPED)
    refused = AlignmentRefused("an operator cancelled it")
    hooks = JoinHooks(refused, refused)
    join_until_stopped(session, hooks)
    assert hooks.attended == ["alignment-1", "alignment-2"]
    assert hooks.num_unwanted == 1
    assert not session.refusals
