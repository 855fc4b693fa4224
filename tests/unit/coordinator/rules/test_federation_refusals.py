"""A member that cannot go on with an alignment, and what follows for the others."""

import pytest

from laser_vfl.coordinator.rules.alignment.alignment import group_lists
from laser_vfl.coordinator.rules.directives import Gathering, Stopped
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.core.errors import AlignmentRefused
from tests.support.fakes.simulated_federation import PHASES, brought_to, called, finished

SILENT_S = MembershipPolicy.silent_s


@pytest.mark.parametrize(
    ("peer", "reason"),
    [
        ("b", "a refused b in the alignment: it sent a point twice"),
        ("a", "a cannot take part in the alignment: it sent a point twice"),
    ],
)
@pytest.mark.parametrize("phase", PHASES)
def test_a_refusal_stops_everybody_and_names_who_and_whom(phase, peer, reason):
    play = called("a", "b", "c")
    taken = brought_to(phase, play, "a", "b", "c")
    play.refuse("a", peer, "it sent a point twice")
    assert {play.directive(name) for name in ("a", "b", "c")} == {Stopped("run-1", reason)}
    assert play.events == [("aligning", "run-1", "run"), ("refused", "run-1", reason)]
    status = play.federation.status(play.now)
    assert (status.last_run, status.last_outcome) == ("run-1", reason)
    assert not play.group()
    if taken:
        play.federation.grouped(taken[0], group_lists(("a", "b", "c"), taken[1]), play.now)
    play.rest(5, "a", "b", "c")
    assert play.federation.run is None
    assert play.event_names == ["aligning", "refused"]
    # It is no obstacle to the next.
    for name in ("a", "b", "c"):
        play.join(name, 1)
    assert play.align("a", "b", "c")
    assert play.federation.run.id == "run-2"


def test_a_refused_retrain_is_not_tried_again():
    play = finished("a", "b")
    play.is_obliging = False
    play.federation.retrain(42)
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.refuse("a", "b")
    assert play.directive("b") == Stopped("run-2", "a refused b in the alignment: it does not fit")
    play.idle("a", "b")
    play.rest(30, "a", "b")
    assert play.directive("a") == Gathering("", (), False)


def test_a_second_refusal_changes_nothing_and_harms_no_renewed_client():
    play = called("a", "b")
    play.refuse("a", "b", "it sent a point twice")
    play.come("a")
    with pytest.raises(AlignmentRefused, match="it sent a point twice"):
        play.refuse("b", "a", "it is gone", id="run-1")
    assert play.directive("a") == Gathering("", ("a", "b"), True)
    assert play.event_names == ["aligning", "refused"]
    assert "sent a point twice" in play.federation.status(play.now).last_outcome


@pytest.mark.parametrize("message", ["commit", "submit"])
def test_nothing_is_taken_for_an_alignment_that_was_refused(message):
    play = called("a", "b")
    play.commit(*(("a", "b") if message == "submit" else ()))
    play.refuse("a", "b")
    for _ in range(3):
        with pytest.raises(AlignmentRefused, match="a refused b"):
            getattr(play, message)("b", id="run-1")
        play.rest(30, "a", "b")


@pytest.mark.parametrize(
    ("silent_s", "is_lost"),
    [(SILENT_S, False), (SILENT_S + 0.5, True)],
)
def test_who_cannot_be_reached_and_is_silent_is_lost(silent_s, is_lost):
    play = called("a", "b", "c", start=StartRule(quorum=2, after_s=5))
    play.commit("a", "b", "c")
    play.rest(silent_s, "a", "c")
    play.refuse("a", "b", "no answer", unreachable=True)
    if not is_lost:
        reason = "a refused b in the alignment: no answer"
        assert {play.directive(name) for name in ("a", "b", "c")} == {Stopped("run-1", reason)}
        return
    reason = "lost b: a cannot reach it, and it is silent"
    assert play.events[1:] == [("given up", "run-1", reason)]
    play.rest(6, "a", "c")
    assert play.events[2:] == [("aligning", "run-2", "run, without b")]
    assert play.align("a", "c")


def test_who_is_silent_but_was_reached_is_not_lost():
    play = called("a", "b")
    play.rest(SILENT_S + 1, "a")
    play.refuse("a", "b", "it sent a point twice")
    assert isinstance(play.directive("b"), Stopped)


def test_only_a_member_can_be_unreachable():
    play = called("a", "b", "c", without=["c"], start=StartRule(quorum=2, after_s=0))
    play.come("c")
    play.rest(SILENT_S + 1, "a", "b")
    play.refuse("a", "c", "no answer", unreachable=True)
    assert play.federation.knows(play.clients["c"])


@pytest.mark.parametrize(("committed", "late"), [([], "a, b"), (["a"], "b"), (["a", "b"], "a, b")])
def test_an_alignment_does_not_take_for_ever(committed, late):
    play = called("a", "b", alignment_timeout_s=100)
    play.commit(*committed)
    play.rest(90, "a", "b")
    assert play.event_names == ["aligning"]
    play.rest(20, "a", "b")
    reason = f"the alignment took too long; it still waits for {late}"
    assert {play.directive(name) for name in ("a", "b")} == {Stopped("run-1", reason)}
    assert play.events[1:] == [("refused", "run-1", reason)]
