"""When a run is wanted, who is told, and with which seed it goes."""

import pytest

from laser_vfl.coordinator.rules.directives import (
    Finished,
    Gathering,
    RequestState,
    State,
    Stopped,
    Training,
)
from laser_vfl.coordinator.rules.run_schedule import RunSchedule
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.core.errors import ContractError, MismatchError
from tests.support.fakes.simulated_federation import (
    RESTART_GRACE_S,
    SEED,
    TIMEOUT_S,
    Play,
    finished,
    started,
)

IDLE = Gathering("", (), False)
PENDING = Gathering("", (), False, own_request=RequestState.PENDING)
REJECTED = Gathering("", (), False, own_request=RequestState.REJECTED)


def is_aligned(play):
    return play.federation.run is not None


def test_nothing_starts_while_nobody_wants_it():
    play = Play("a", "b")
    play.idle("a", "b")
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.rest(60, "a", "b")
    assert not is_aligned(play)
    assert play.directive("a") == play.directive("b") == IDLE


def test_a_client_without_a_model_wakes_the_idle_ones():
    play = Play("a", "b", "c", "d")
    play.idle("a", "b", "c")
    assert play.directive("a") == IDLE
    play.join("d", 1)
    for name in ("a", "b", "c"):
        assert name in play.directive(name).waiting_for
        assert play.directive(name).wanted
        assert not is_aligned(play)
        play.prepare(name, 1)
    assert play.directive("a") == Gathering("run-1", (), True)
    assert play.federation.run.members == ("a", "b", "c", "d")
    play.ready("a", "b", "c", "d")
    assert play.view.seed == SEED


def test_a_requested_run_is_not_spent_on_a_quorum_without_labels():
    """Otherwise it is over before the client comes back that has them, and nobody trains."""
    play = Play("a", "b", start=StartRule(quorum=1, after_s=3))
    play.federation.retrain(None)
    play.join("b", 1, has_head=False)
    play.rest(10, "b")
    assert play.directive("b").wanted
    assert not is_aligned(play)
    play.join("a", 1)
    assert play.federation.run.members == ("a", "b")


def test_a_wish_counts_only_in_session():
    play = Play("a", "b")
    play.idle("a")
    play.clients["b"] = play.register("b")
    assert play.directive("a") == IDLE
    play.connect("b")
    assert play.directive("a") == Gathering("", ("a", "b"), True)


@pytest.mark.parametrize("how", ["session", "stopped", "silence", "other mind"])
def test_who_wants_a_run_and_leaves_takes_the_wish_along(how):
    play = Play("a", "b", "c")
    play.idle("a")
    play.prepare("a", 1)
    play.join("b", 1)
    assert play.directive("a") == Gathering("", ("c",), True)
    if how == "session":
        play.disconnect("b")
    elif how == "stopped":
        play.federation.gone(play.clients["b"], "it was stopped")
    elif how == "silence":
        play.rest(TIMEOUT_S + 1, "a")
    else:
        play.register("b", wants_run=False)
    assert play.directive("a") == IDLE
    play.idle("c")
    play.prepare("c", 1)
    assert not is_aligned(play)


def test_who_wants_a_run_and_leaves_when_it_is_aligned_takes_the_wish_along():
    play = Play("a", "b")
    play.idle("a")
    play.join("b", 1)
    play.prepare("a", 1)
    assert play.directive("a") == Gathering("run-1", (), True)
    play.disconnect("b")
    assert play.directive("a") == IDLE
    play.idle("b")
    play.prepare("b", 1)
    assert not is_aligned(play)
    # Who is prepared takes part as soon as a run is wanted again.
    play.federation.retrain(5)
    play.tick()
    assert play.directive("a") == Gathering("run-2", (), True)


def test_the_quorum_clock_runs_only_while_a_run_is_wanted():
    play = Play("a", "b", "c", start=StartRule(quorum=2, after_s=5))
    play.idle("a", "b")
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.rest(60, "a", "b")
    play.federation.retrain(None)
    play.rest(4.5, "a", "b")
    assert not is_aligned(play)
    play.rest(1, "a", "b")
    assert play.federation.run.members == ("a", "b")


def test_a_quorum_starts_nothing_without_the_one_that_wants_it():
    play = Play("a", "b", "c", "d", start=StartRule(quorum=2, after_s=0))
    play.idle("a", "b")
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.come("c")
    play.rest(5, "a", "b", "c")
    assert not is_aligned(play)
    play.prepare("c", 1)
    assert play.federation.run.members == ("a", "b", "c")


@pytest.mark.parametrize("wants_run", [True, False])
def test_who_comes_during_a_run_is_told_of_its_own_wish_only(wants_run):
    play = Play("a", "b", "late", start=StartRule(quorum=2, after_s=0))
    play.join("a", 1)
    play.join("b", 1)
    play.come("late", wants_run=wants_run)
    assert play.directive("late") == Gathering("", (), wants_run)
    play.ready("a", "b")
    assert isinstance(play.directive("a"), Training)
    assert play.directive("late") == Gathering("", (), wants_run)
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.idle("a", "b")
    assert play.directive("a") == IDLE
    assert play.directive("late") == (PENDING if wants_run else IDLE)


def test_retrain_wakes_everybody_and_carries_its_seed():
    play = finished("a", "b")
    assert play.federation.retrain(42) == 42
    assert play.directive("a") == Gathering("", ("a", "b"), True)
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.ready("a", "b", run="run-2")
    assert play.view.seed == play.federation.run.seed == 42
    assert play.seeds == {"run-1": SEED, "run-2": 42}
    # The request has been met: after the run all rest, and the next run has the configured seed.
    play.beat("a", "b", state=State.FINISHED, run="run-2")
    play.idle("a", "b")
    assert play.directive("a") == IDLE
    assert play.federation.status(play.now).seed == SEED


def test_retrain_draws_a_seed_when_none_is_given():
    play = Play("a")
    assert [play.federation.retrain(None), play.federation.retrain(0)] == [1001, 0]
    play.idle("a")
    play.prepare("a", 1)
    assert play.federation.run.seed == 0


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_out_of_range_is_refused_and_nothing_is_wanted(seed):
    play = Play("a")
    with pytest.raises(ContractError, match="expected a seed from 0 to"):
        play.federation.retrain(seed)
    assert not play.federation.wanted
    assert play.federation.retrain(2**63 - 1) == 2**63 - 1


def test_retrain_is_refused_while_a_run_is_aligned_or_under_way():
    play = Play("a")
    play.join("a", 1)
    for _ in range(2):
        with pytest.raises(MismatchError, match="a run is under way: run-1"):
            play.federation.retrain(None)
        play.ready("a")
    play.beat("a", state=State.FINISHED, run="run-1")
    play.idle("a")
    assert play.directive("a") == IDLE


def test_a_run_given_up_before_its_start_is_still_requested():
    play = finished("a", "b")
    play.federation.retrain(42)
    play.prepare("a", 1)
    play.prepare("b", 1)
    assert play.federation.run.id == "run-2"
    play.disconnect("b")
    assert play.directive("a") == Gathering("", ("b",), True)
    play.idle("b")
    play.prepare("b", 1)
    assert (play.federation.run.id, play.federation.run.seed) == ("run-3", 42)


def test_a_retrain_that_one_left_under_way_is_not_tried_again():
    play = finished("a", "b")
    play.federation.retrain(42)
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.ready("a", "b", run="run-2")
    play.federation.gone(play.clients["b"], "the disk is full")
    play.tick()
    play.answer(a=4)
    play.beat("a", state=State.FINISHED, run="run-2")
    assert play.directive("a") == Finished("run-2")
    play.idle("a", "b")
    play.rest(30, "a", "b")
    assert play.directive("a") == play.directive("b") == IDLE


def test_without_labels_anywhere_the_wish_is_dropped():
    play = Play("a")
    play.federation.retrain(None)
    play.come("a", has_head=False, wants_run=False)
    play.prepare("a", 1)
    assert isinstance(play.directive("a"), Stopped)
    assert not play.federation.wanted
    play.come("a", has_head=False, wants_run=False)
    assert play.directive("a") == IDLE


def test_a_restarted_coordinator_starts_nothing():
    roster = ("a", "b", "c")
    before = finished(*roster)
    assert before.directive("a") == IDLE
    after = Play(*roster)
    after.idle(*roster)
    after.rest(30, *roster)
    assert {after.directive(name) for name in roster} == {IDLE}


def lost_and_back(**keys):
    """A run of two that lost one, which is back with nothing of the run; the other has finished."""
    play = started("a", "b")
    play.wait(TIMEOUT_S, "a")
    play.wait(1, "a", stopped=1)
    assert play.view.clients == ("a",)
    play.come("b", **keys)
    assert isinstance(play.directive("a"), Training)
    assert play.directive("b") == Gathering("", (), play.clients["b"].wants_run)
    play.beat("a", state=State.FINISHED, run="run-1")
    return play


def test_lost_in_a_run_and_back_with_a_model_it_rests_with_the_others():
    play = lost_and_back(wants_run=False)
    play.idle("a")
    play.rest(30, "a", "b")
    assert play.directive("a") == play.directive("b") == IDLE


def test_lost_in_a_run_and_back_without_a_model_it_waits_for_an_approval():
    play = lost_and_back()
    play.idle("a")
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.rest(60, "a", "b")
    assert (play.directive("a"), play.directive("b")) == (IDLE, PENDING)
    play.federation.approve("b", None)
    play.tick()
    assert play.directive("b") == Gathering("run-2", (), True)


def back_and_empty():
    """A federation that has trained; b has lost all it had, and asks for a run."""
    play = finished("a", "b")
    play.prepare("a", 1)
    play.disconnect("b")
    play.join("b", 1, nonce="empty")
    return play


def test_who_comes_back_empty_starts_nothing_and_is_shown_to_ask():
    play = back_and_empty()
    play.rest(24 * 3600, "a", "b")
    assert (play.directive("a"), play.directive("b")) == (IDLE, PENDING)
    status = play.federation.status(play.now)
    assert (status.requests, status.wanted, status.waiting_for) == (("b",), False, ())
    assert "aligning" not in play.event_names[play.event_names.index("finished") :]


def test_who_asks_again_and_again_starts_nothing():
    play = back_and_empty()
    for number in range(50):
        play.disconnect("b")
        play.join("b", 1, nonce=f"again-{number}")
        play.register("b", nonce=f"again-{number}")
        play.tick()
    assert play.directive("a") == IDLE
    assert play.federation.requests == ("b",)
    play.disconnect("b")
    assert play.federation.requests == ()


def test_an_approval_lets_one_run_start():
    play = back_and_empty()
    assert play.federation.approve("b", 5) == 5
    assert play.federation.requests == ()
    play.tick()
    play.ready("a", "b", run="run-2")
    assert play.view.seed == 5
    play.beat("a", "b", state=State.FINISHED, run="run-2")
    play.idle("a")
    play.disconnect("b")
    play.join("b", 1, nonce="empty again")
    play.rest(60, "a", "b")
    assert (play.directive("a"), play.directive("b")) == (IDLE, PENDING)


def test_what_nobody_asks_for_cannot_be_approved():
    play = finished("a", "b")
    for client in ("a", "museum"):
        for decide in (lambda c: play.federation.approve(c, None), play.federation.reject):
            with pytest.raises(MismatchError):
                decide(client)
    assert not play.federation.wanted
    play = started("a", "b")
    with pytest.raises(MismatchError, match="a run is under way"):
        play.federation.approve("a", None)


def test_an_approved_run_does_not_start_without_who_asks_for_it():
    play = Play("a", "b", "c", start=StartRule(quorum=2, after_s=0))
    for name in ("a", "b"):
        play.join(name, 1)
    play.ready("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.idle("a", "b")
    for name in ("a", "b"):
        play.prepare(name, 1)
    play.come("c")
    play.federation.approve("c", None)
    play.restart()
    play.rest(5, "a", "b", "c")
    assert not is_aligned(play)
    play.prepare("c", 1)
    assert play.federation.run.members == ("a", "b", "c")


def test_a_rejected_request_is_gone_until_it_is_made_again():
    play = back_and_empty()
    play.federation.reject("b")
    assert play.directive("b") == REJECTED
    assert play.federation.requests == ()
    play.restart()
    assert play.directive("b") == REJECTED
    with pytest.raises(MismatchError, match="asks for no run"):
        play.federation.approve("b", None)
    play.register("b", nonce="empty")
    assert play.directive("b") == PENDING


def test_after_a_restart_of_the_coordinator_no_client_starts_a_run():
    play = back_and_empty()
    play.restart()
    play.rest(60, "a", "b")
    assert (play.directive("a"), play.directive("b")) == (IDLE, PENDING)


def test_the_state_of_the_release_before_says_that_a_run_has_finished():
    before = finished("a", "b").federation.snapshot()
    for key in ("has_trained", "approved_for", "schedule"):
        del before[key]
    for stored in before["registry"]["registrations"]:
        del stored["rejected"]
    play = Play("a", "b")
    play.federation.restore(before, {}, play.now)
    play.join("a", 1, nonce="new")
    play.join("b", 1, nonce="new")
    play.rest(60, "a", "b")
    assert play.directive("a") == PENDING


def test_a_first_run_that_came_to_nothing_was_not_the_first():
    play = started("a", "b")
    for name in ("a", "b"):
        play.disconnect(name)
    for name in ("a", "b"):
        play.join(name, 1, nonce="again")
    assert "stopped" in play.event_names
    assert play.federation.run.id == "run-2"


def scheduled(every_s, *, counted_from=None):
    """Two idle clients with models, under a schedule; its clock is the play's own."""
    play = Play("a", "b", schedule=lambda: RunSchedule(every_s, counted_from))
    for name in ("a", "b"):
        play.join(name, 1)
    play.ready("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.idle("a", "b")
    return play


def test_the_schedule_asks_for_a_run_as_long_after_the_last_one_began():
    play = scheduled(100)
    began_at = play.now
    assert play.federation.status(play.now).next_run_at == began_at + 100
    play.rest(99, "a", "b")
    assert play.directive("a") == IDLE
    play.rest(1.5, "a", "b")
    assert play.directive("a") == Gathering("", ("a", "b"), True)
    for name in ("a", "b"):
        play.prepare(name, 1)
    play.wait(30, "a", "b", state=State.JOINING, run="")
    play.ready("a", "b", run="run-2")
    assert play.federation.status(play.now).next_run_at == play.now + 100


def test_a_run_that_was_due_while_the_coordinator_was_down_is_made_up_for_once():
    play = scheduled(100)
    play.now += 1000
    play.restart()
    play.idle("a", "b")
    play.tick()
    assert play.directive("a").wanted
    assert play.federation.status(play.now).next_run_at == play.now + 100


def test_a_scheduled_run_that_comes_to_nothing_is_tried_when_the_next_is_due():
    play = scheduled(100)
    play.rest(101, "a", "b")
    play.is_obliging = False
    for name in ("a", "b"):
        play.prepare(name, 1)
    play.refuse("a", "b")
    play.idle("a", "b")
    play.rest(90, "a", "b")
    assert play.directive("a") == IDLE
    play.rest(15, "a", "b")
    assert play.directive("a").wanted


def test_a_schedule_has_no_part_in_the_first_run():
    play = Play("a", "b", schedule=lambda: RunSchedule(100))
    play.idle("a", "b")
    play.rest(1000, "a", "b")
    assert play.directive("a") == IDLE
    assert play.federation.status(play.now).next_run_at is None


def test_a_client_that_could_come_back_to_the_run_does_not_want_another():
    play = started("a", "b")
    play.federation.gone(play.clients["b"], "")
    play.come("b", nonce="again")
    assert play.federation.wanted
    play.beat("b", run="run-1")
    assert not play.federation.wanted


def test_a_run_that_all_have_forgotten_makes_way_for_the_next():
    play = started("a", "b")
    for name in ("a", "b"):
        play.disconnect(name)
    play.join("a", 1, nonce="again")
    play.rest(2 * RESTART_GRACE_S, "a")
    assert play.federation.waiting_for == ("a", "b"), "b may still have something of it"
    play.join("b", 1, nonce="again")
    assert ("stopped", "run-1", "all of its members came back with nothing of it") in play.events
    play.ready("a", "b", run="run-2")
    assert play.view.clients == ("a", "b")
