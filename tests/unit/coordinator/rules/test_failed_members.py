"""A client that cannot do its part in a run is not called to the next at once."""

import pytest

from laser_vfl.coordinator.rules.directives import State
from laser_vfl.coordinator.rules.policies import AlignmentPolicy, MembershipPolicy
from laser_vfl.coordinator.rules.run_start import FREE_DEPARTURES, StartRule
from tests.support.fakes.simulated_federation import Play, called, finished

FULL = "naming.safetensors cannot be written (No space left on device)"
FIRST_S = AlignmentPolicy.first_recall_s
READY_S = MembershipPolicy.ready_s
LONGEST_S = AlignmentPolicy.longest_recall_s


def fail(play, name, problem=FULL):
    """Leave because of a problem, and come back at once as clients that serve a model do."""
    play.federation.gone(play.clients[name], problem, problem)
    play.idle(name)
    play.prepare(name, 1)


def asked(*roster, **keys):
    """A federation that serves, and is asked for a run that is aligned at once."""
    play = finished(*roster, **keys)
    for name in roster:
        play.prepare(name, 1)
    play.events.clear()
    play.federation.retrain(5)
    play.tick()
    assert play.federation.run is not None
    return play


def num_aligned(play):
    return play.event_names.count("aligned")


def summary(play, name):
    return next(c for c in play.federation.status(play.now).clients if c.client == name)


def test_a_full_disk_does_not_have_everybody_align_again_and_again():
    play = asked("a", "b", "c")
    for _ in range(30):  # three and a half minutes of a client that comes back every seven seconds
        if play.federation.run is not None:
            fail(play, "b")
        play.rest(7, "a", "b", "c")
    assert num_aligned(play) <= 5


def test_each_failure_doubles_the_wait():
    play = asked("a", "b")
    for wait_s in (FIRST_S, 2 * FIRST_S, 4 * FIRST_S):
        fail(play, "b")
        play.rest(wait_s - 1, "a", "b")
        assert play.federation.run is None
        play.rest(1.5, "a", "b")
        assert play.federation.run is not None


def test_the_wait_has_an_end():
    play = asked("a", "b")
    for _ in range(12):
        fail(play, "b")
        wait_s = summary(play, "b").held_back_s
        assert wait_s <= LONGEST_S
        play.rest(wait_s + 1, "a", "b")
        assert play.federation.run is not None


def test_it_is_not_called_before_it_says_that_it_can():
    play = asked("a", "b")
    play.federation.gone(play.clients["b"], FULL, FULL)
    play.idle("b")
    play.rest(2 * FIRST_S, "a", "b")
    assert play.federation.run is None
    play.prepare("b", 1)
    play.tick()
    assert play.federation.run is not None


def test_status_says_who_cannot_take_part_and_why():
    play = asked("a", "b")
    fail(play, "b")
    assert play.federation.status(play.now).waiting_for == ("b",)
    assert summary(play, "b").problem == FULL
    assert summary(play, "b").held_back_s == FIRST_S
    assert not summary(play, "a").problem
    play.federation.gone(play.clients["b"], "it was stopped")
    assert summary(play, "b").problem == FULL, "also while it is not there"


def test_status_says_what_a_client_says_of_itself():
    play = finished("a", "b")
    play.federation.retrain(5)
    play.prepare("a", 1)
    play.serve("b", problem="the state directory cannot be written (No space left on device)")
    assert summary(play, "b").problem.startswith("the state directory")
    assert summary(play, "b").held_back_s == 0


def test_with_a_quorum_the_others_train_without_it():
    play = asked("a", "b", "c", start=StartRule(quorum=2, after_s=3))
    fail(play, "b")
    play.rest(4, "a", "b", "c")
    assert play.federation.run.members == ("a", "c")


def test_a_run_that_starts_ends_the_wait():
    play = asked("a", "b")
    fail(play, "b")
    play.rest(FIRST_S + 1, "a", "b")
    play.ready("a", "b", run=play.federation.run.id)
    assert play.membership is not None
    assert not summary(play, "b").problem


def test_an_operator_who_asks_anew_is_not_kept_waiting():
    play = asked("a", "b")
    fail(play, "b")
    play.federation.retrain(6)
    play.tick()
    assert play.federation.run is not None


def test_who_does_not_get_ready_is_waited_for_by_name_and_not_for_ever():
    play = asked("a", "b", "c", start=StartRule(quorum=2, after_s=3))
    run = play.federation.run.id
    play.ready("a", "c", run=run)
    assert play.federation.status(play.now).waiting_for == ("b",)
    for _ in range(int(READY_S) + 1):
        play.beat("b")
        play.wait(1, "a", "c", state=State.READY, run=run)
    assert play.federation.run is None
    assert play.events[-1] == ("given up", run, f"b did not get ready in {READY_S:g} s")
    assert summary(play, "b").held_back_s > 0
    play.rest(4, "a", "b", "c")
    assert play.federation.run.members == ("a", "c")


def test_a_pause_of_the_coordinator_does_not_count_as_time_to_get_ready():
    play = asked("a", "b")
    play.now += 2 * READY_S
    play.ready("a", run=play.federation.run.id)
    assert play.federation.run is not None
    play.ready("b", run=play.federation.run.id)
    assert play.membership is not None


def test_who_is_late_in_an_alignment_waits_before_the_next():
    play = called("a", "b", alignment_timeout_s=100)
    play.commit("a")
    play.rest(101, "a", "b")
    assert 0 < summary(play, "b").held_back_s <= FIRST_S
    assert summary(play, "a").held_back_s == 0


def test_who_leaves_again_and_again_before_the_first_step_is_not_called_at_once():
    play = asked("a", "b")
    for _ in range(FREE_DEPARTURES):
        play.federation.gone(play.clients["b"], "it was stopped")
        play.idle("b")
        play.prepare("b", 1)
        play.tick()
        assert play.federation.run is not None
    play.federation.gone(play.clients["b"], "it was stopped")
    play.idle("b")
    play.prepare("b", 1)
    play.tick()
    assert play.federation.run is None
    assert summary(play, "b").held_back_s == FIRST_S


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_who_was_stopped_or_killed_is_called_at_once(how):
    play = asked("a", "b")
    if how == "stopped":
        play.federation.gone(play.clients["b"], "it was stopped")
    else:
        play.disconnect("b")
    assert play.federation.run is None
    play.idle("b")
    play.prepare("b", 1)
    play.tick()
    assert play.federation.run is not None


def test_who_fails_in_the_alignment_itself_waits_too():
    play = Play("a", "b", is_obliging=False)
    play.join("a", 1)
    play.join("b", 1)
    assert play.call("b") is not None
    play.federation.gone(play.clients["b"], FULL, FULL)
    play.join("b", 1)
    assert play.call("a") is None
    play.rest(FIRST_S + 1, "a", "b")
    assert play.call("a") is not None
