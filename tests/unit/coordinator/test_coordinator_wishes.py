"""When a run is wanted, who is told, and with which seed it goes."""

import pytest
from play import SEED, TIMEOUT_S, Play, finished, started

from laser_vfl.coordinator.directives import Gathering, StartRule, State, Stopped, View
from laser_vfl.core.errors import ContractError, MismatchError

IDLE = Gathering("", (), False)


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
    assert play.directive("a").seed == SEED


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
        play.federation.stopped(play.clients["b"], "it was stopped")
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
    assert isinstance(play.directive("a"), View)
    assert play.directive("late") == Gathering("", (), wants_run)
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.idle("a", "b")
    waiting_for = ("a", "b", "late") if wants_run else ()
    assert play.directive("a") == play.directive("late") == Gathering("", waiting_for, wants_run)


def test_retrain_wakes_everybody_and_carries_its_seed():
    play = finished("a", "b")
    assert play.federation.retrain(42) == 42
    assert play.directive("a") == Gathering("", ("a", "b"), True)
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.ready("a", "b", run="run-2")
    assert play.directive("a").seed == play.federation.run.seed == 42
    assert play.seeds == {"run-1": SEED, "run-2": 42}
    # The wish is fulfilled: after its end all rest, and the next run has the configured seed.
    play.beat("a", "b", state=State.FINISHED, run="run-2")
    play.idle("a", "b")
    assert play.directive("a") == IDLE
    for name in ("a", "b"):
        play.federation.disconnected(play.clients[name], play.sessions[name], play.now)
        play.join(name, 1, nonce=f"{name}-again")
    assert play.federation.run.seed == SEED


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


def test_a_run_given_up_before_its_start_keeps_the_wish():
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


def test_a_retrain_that_stopped_under_way_is_not_tried_again():
    play = finished("a", "b")
    play.federation.retrain(42)
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.ready("a", "b", run="run-2")
    play.federation.stopped(play.clients["b"], "the disk is full")
    assert isinstance(play.directive("a"), Stopped)
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


def test_lost_in_a_run_and_back_with_a_model_it_rests_with_the_others():
    play = started("a", "b")
    play.wait(TIMEOUT_S + 1, "a")
    assert isinstance(play.directive("a"), Stopped)
    play.idle("b")
    assert play.directive("b") == IDLE
    play.idle("a")
    play.rest(30, "a", "b")
    assert play.directive("a") == play.directive("b") == IDLE


def test_lost_in_a_run_and_back_with_a_model_it_helps_one_without():
    play = started("a", "b")
    play.wait(TIMEOUT_S + 1, "a")
    play.idle("b")
    play.join("a", 1)
    assert play.directive("b") == Gathering("", ("b",), True)
    play.prepare("b", 1)
    assert play.directive("b") == Gathering("run-2", (), True)


def test_who_is_back_in_time_without_knowing_of_the_run_ends_it():
    play = started("a", "b")
    play.disconnect("b")
    play.idle("b")
    play.wait(TIMEOUT_S - 2, "a")
    assert isinstance(play.directive("a"), View)
    for _ in range(8):
        play.now += 0.5
        play.beat("a", state=State.RUNNING, run="run-1")
        play.beat("b")
    assert play.directive("a") == Stopped("run-1", "lost b: it left the run")
