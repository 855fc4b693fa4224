"""Members that say what cannot be true harm nobody but themselves."""

import pytest

from laser_vfl.coordinator.api.client_reports import MAX_CHECKPOINTS, read_report
from laser_vfl.coordinator.rules.directives import Report, State
from laser_vfl.coordinator.rules.membership.admission import Admission
from laser_vfl.coordinator.rules.policies import MOST_PHASES, MembershipPolicy
from laser_vfl.core.errors import ContractError
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.fakes.simulated_federation import started

DEADLINE_S = 4.0


def test_nobody_has_stopped_what_has_not_begun():
    play = started("a", "b")
    report = Report(state=State.RUNNING, run="run-1", stopped=2**64 - 1)
    with pytest.raises(ContractError, match="cannot have stopped"):
        play.federation.heartbeat(play.clients["a"], report, play.now)
    assert play.directive("b").stop == 0


def test_an_answer_below_what_the_view_gave_does_not_count():
    """Nobody goes back behind the step that it was admitted at."""
    play = started("a", "b", "c")
    for generation in (1, 2):
        if generation == 1:
            play.disconnect("c")
            play.wait(12, "a", "b")
        else:
            play.federation.gone(play.clients["b"], "it has had enough")
            play.tick()
        answers = {"a": 900 if generation == 1 else 0, "b": 900}
        for name, next_step in answers.items():
            if name in play.directive("a").view.clients and play.federation.registry.get(name):
                play.beat(
                    name,
                    state=State.RUNNING,
                    run="run-1",
                    stopped=generation,
                    next_step=next_step,
                )
    (member,) = play.directive("a").view.members
    assert (member.client, member.next_step) == ("a", 900)


def test_who_has_always_just_begun_is_not_believed_for_ever():
    play = started("a", "b", step_timeout_s=DEADLINE_S)
    until = play.now + (MOST_PHASES + 2) * DEADLINE_S
    while play.now < until and not play.directive("a").stop:
        play.now += 0.5
        waited_s = min(play.now - 1000.0, 3600.0)
        play.beat("a", state=State.RUNNING, run="run-1", waiting_for=("b",), phase_s=waited_s)
        play.beat("b", state=State.RUNNING, run="run-1", phase_s=0.1)
        play.tick()
    assert play.directive("a").stop == 1


def test_waits_stay_within_bounds_however_often_somebody_was_left_out():
    joiners = Admission(["a"], MembershipPolicy())
    for _ in range(3000):
        joiners.excluded("a", now=100.0)
    assert joiners._not_before["a"] == 100.0 + MembershipPolicy.longest_rejoin_s


def test_many_checkpoints_are_no_reason_to_refuse_a_client():
    steps = range(1, 1000)
    heartbeat = pb.Heartbeat(state=pb.CLIENT_STATE_RUNNING, checkpoints=steps)
    assert read_report(heartbeat, ["a"]).checkpoints == tuple(steps)[-MAX_CHECKPOINTS:]
