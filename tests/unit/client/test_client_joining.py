"""On the way into a run: an alignment that fails here or elsewhere is not the end of the daemon."""

import asyncio

import pytest

from laser_vfl.client.joining import Wish, join
from laser_vfl.client.session import Welcome
from laser_vfl.core.errors import (
    AlignmentOver,
    AlignmentRefused,
    ContractError,
    DataError,
    LimitExceeded,
    TrainingStopped,
)
from laser_vfl.core.settings import TrainingSettings
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


STOPPED = pb.Directive(stopped=pb.Stopped(run="run-1", reason="that is all for today"))


class Session:
    """Gives one directive after the other, each when the one before asks for nothing any more."""

    def __init__(self, *directives, on_refusal=None):
        self.refusals = []
        self._directives = list(directives)
        self._on_refusal = on_refusal

    async def register(self, *, wants_run):
        settings = TrainingSettings(representation_dim=4, batch_size=4, epochs=1)
        return Welcome(1, ROSTER, settings, "ecdh")

    def open(self):
        pass

    async def close(self, reason=""):
        pass

    def report(self, **status):
        pass

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


class Applicant:
    """Takes part in alignments as the test says."""

    def __init__(self, *outcomes):
        self.attended = []
        self._outcomes = list(outcomes)

    def accept(self, welcome):
        pass

    async def prepare(self):
        pass

    async def attend(self, call):
        self.attended.append(call.id)
        raise self._outcomes.pop(0)


def join_until_stopped(session, applicant):
    async def run():
        async with asyncio.timeout(5):
            await join(session, "bank", applicant, Wish(wants_run=True, patience_s=1.0))

    with pytest.raises(TrainingStopped, match="all for today"):
        asyncio.run(run())


TWO = (called("alignment-1"), called("alignment-2"), STOPPED)


@pytest.mark.parametrize(
    "ending", [AlignmentOver("lost shop"), AlignmentRefused("shop refuses because of club")]
)
def test_after_an_alignment_that_ended_the_next_one_is_attended(ending):
    session, applicant = Session(*TWO), Applicant(ending, ending)
    join_until_stopped(session, applicant)
    assert applicant.attended == ["alignment-1", "alignment-2"]
    assert not session.refusals


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (DataError("no such column"), "its tables cannot be used as they are; see its log"),
        (LimitExceeded("enough today"), "enough today"),
    ],
    ids=["its own tables are nobody's business", "enough"],
)
def test_what_is_wrong_here_is_told_and_nobody_else_is_blamed(problem, told):
    session, applicant = Session(*TWO), Applicant(problem, problem)
    join_until_stopped(session, applicant)
    assert session.refusals == [(f"alignment-{number}", "bank", told, False) for number in (1, 2)]


@pytest.mark.parametrize(
    "message", ["x" * 1000, "a line\nand another", "columns " + "\u200b" * 3], ids=range(3)
)
def test_whatever_is_wrong_here_can_be_told(message):
    """A reason that the coordinator does not take must not end the daemon."""
    session, applicant = Session(*TWO), Applicant(LimitExceeded(message), LimitExceeded(message))
    join_until_stopped(session, applicant)
    assert applicant.attended == ["alignment-1", "alignment-2"]
    for _, peer, reason, _ in session.refusals:
        assert peer == "bank"
        assert len(reason) <= MAX_REASON
        assert reason.isprintable()


def test_an_alignment_may_be_over_before_this_client_can_refuse_it():
    session = Session(*TWO, on_refusal=AlignmentOver("not under way any more"))
    applicant = Applicant(DataError("no such column"), DataError("no such column"))
    join_until_stopped(session, applicant)
    assert applicant.attended == ["alignment-1", "alignment-2"]


def test_the_reason_that_others_hear_has_no_path():
    problem = DataError("the table has no rows", where="/home/bank/secret.csv", hint="add some")
    session, applicant = Session(*TWO), Applicant(problem, problem)
    join_until_stopped(session, applicant)
    assert "/home" not in str(session.refusals)


def test_a_call_that_makes_no_sense_is_not_followed():
    call = called("alignment-1")
    call.gathering.call.members[0].client = "thief"
    applicant = Applicant()

    async def run():
        async with asyncio.timeout(5):
            await join(Session(call), "bank", applicant, Wish(wants_run=True, patience_s=1.0))

    with pytest.raises(ContractError):
        asyncio.run(run())
    assert not applicant.attended
