"""A run whose members have all vanished, and a coordinator that is killed in the middle."""

import pytest

from laser_vfl.coordinator.rules.directives import Finished, State
from laser_vfl.coordinator.rules.membership.membership import NO_LIMIT
from tests.support.fakes.simulated_federation import RESTART_GRACE_S, TIMEOUT_S, Play, started


def steps(play):
    return {member.client: member.next_step for member in play.view.members}


def deserted(*roster, complete=(), **keys):
    """A run of which no process is left; it had these complete checkpoints."""
    play = started(*roster, **keys)
    play.train(*roster, checkpoints=complete)
    for name in roster:
        play.disconnect(name)
    play.wait(TIMEOUT_S)
    assert play.stop == 1
    return play


def load(play, name, step):
    """Be ready to go on from a checkpoint."""
    held = tuple(held for held in (4, 6) if held <= step)
    play.beat(name, state=State.READY, run="run-1", next_step=step, checkpoints=held)


# Nobody is left.


def test_all_who_come_back_go_on_from_the_highest_checkpoint_that_they_have_in_common():
    play = deserted("a", "b", complete=(4,))
    assert play.directive("a").waiting_for == ("a", "b")
    play.come_back("a", checkpoints=(4, 6, 8))
    assert play.directive("a").resume is None, "it has to wait for the word"
    assert play.directive("a").waiting_for == ("b",)
    play.come_back("b", checkpoints=(4, 6))
    assert play.directive("a").resume == play.directive("b").resume == 6
    load(play, "a", 6)
    assert play.view.generation == 1
    load(play, "b", 6)
    assert (play.view.generation, steps(play)) == (2, {"a": 6, "b": 6})
    assert play.directive("a").resume == NO_LIMIT


def test_who_lacks_the_complete_checkpoint_comes_with_its_best_one_below():
    play = deserted("a", "b", complete=(4,))
    play.come_back("a", checkpoints=(4, 6))
    play.come_back("b", checkpoints=())
    assert play.directive("a").resume == 4
    load(play, "a", 4)
    load(play, "b", 0)
    assert steps(play) == {"a": 4, "b": 4}


def test_who_is_past_the_word_has_to_load_before_it_counts():
    play = deserted("a", complete=(4,))
    play.come_back("a", checkpoints=(4,))
    load(play, "a", 9)
    assert play.view.generation == 1
    load(play, "a", 4)
    assert steps(play) == {"a": 4}


def test_after_the_grace_those_that_came_back_go_on_from_the_last_complete_one():
    play = deserted("a", "b", "c", complete=(4,))
    play.come_back("a", checkpoints=(4, 6))
    play.come_back("b", checkpoints=(4, 6))
    play.wait(RESTART_GRACE_S - TIMEOUT_S, "a", "b", state=State.JOINING, checkpoints=(4, 6))
    assert play.directive("a").resume is None
    play.wait(TIMEOUT_S, "a", "b", state=State.JOINING, checkpoints=(4, 6))
    assert play.directive("a").resume == 4, "c may not have had the other"
    load(play, "a", 4)
    assert play.view.generation == 1, "b has come back, too, and is not ready yet"
    load(play, "b", 4)
    assert steps(play) == {"a": 4, "b": 4}
    assert [client for client, _ in play.departures] == ["a", "b", "c"]
    # The last one joins where the others are.
    play.come_back("c", checkpoints=(4, 6))
    play.live(2, a=8, b=9, c=6)
    assert steps(play) == {"a": 8, "b": 9, "c": 8}


@pytest.mark.parametrize("rule", [{"on_lost": "wait"}, {"quorum": 2}], ids=str)
def test_too_few_wait_on_after_the_grace(rule):
    play = deserted("a", "b", complete=(4,), **rule)
    play.come_back("a", checkpoints=(4,))
    play.wait(3 * RESTART_GRACE_S, "a", state=State.READY, next_step=4, checkpoints=(4,))
    assert play.view.generation == 1
    assert play.directive("a").waiting_for == ("b",)
    play.come_back("b", checkpoints=(4,))
    load(play, "a", 4)
    load(play, "b", 4)
    assert steps(play) == {"a": 4, "b": 4}


def test_processes_that_were_only_out_of_touch_go_on_as_they_are():
    play = started("a", "b")
    play.wait(TIMEOUT_S)
    assert play.stop == 1
    play.live(1, a=8, b=9)
    assert (play.view.generation, steps(play)) == (2, {"a": 8, "b": 9})


# A coordinator that is killed.


def crash(play):
    yield play.federation.gone(play.clients["b"], "the disk is full")
    for _ in range(6):
        yield play.live(0.5, a=4, c=5)


def silence(play):
    for _ in range(60):
        yield play.live(0.5, a=4, b=5)


def leave(play):
    yield play.train("a", leaving=True, next_step=3)
    for _ in range(6):
        yield play.live(0.5, b=4, c=5)
        if play.view.generation == 1:
            play.train("a", leaving=True, stopped=1, next_step=3)


def join(play):
    yield play.federation.gone(play.clients["c"], "")
    for _ in range(4):
        yield play.live(0.5, a=4, b=5)
    yield play.come_back("c")
    for _ in range(6):
        yield play.live(0.5, a=6, b=7, c=2)


def desert(play):
    yield play.train("a", "b", "c", checkpoints=(4,))
    for name in ("a", "b", "c"):
        yield play.federation.gone(play.clients[name], "")
    yield play.tick()
    for name in ("a", "b", "c"):
        yield play.come_back(name, checkpoints=(4, 6))
    for name in ("a", "b", "c"):
        yield play.tick()
        yield load(play, name, 6)


@pytest.mark.parametrize(
    ("scene", "members"),
    [
        (crash, {"a": 4, "c": 5}),
        (silence, {"a": 4, "b": 5}),
        (leave, {"b": 4, "c": 5}),
        (join, {"a": 6, "b": 7, "c": 6}),
        (desert, {"a": 6, "b": 6, "c": 6}),
    ],
)
def test_a_coordinator_killed_at_any_moment_goes_on_alike(scene, members):
    undisturbed = started("a", "b", "c")
    num_events = sum(1 for _ in scene(undisturbed))
    assert steps(undisturbed) == members
    for moment in range(num_events):
        play = started("a", "b", "c")
        for number, _ in enumerate(scene(play)):
            if number == moment:
                play.restart()
        assert steps(play) == members, f"killed after event {moment}"
        assert play.view.generation == undisturbed.view.generation


def test_a_coordinator_killed_before_the_start_still_has_the_rows_to_tell():
    play = Play("a", "b")
    play.join("a", 1, 2)
    play.join("b", 2, 3)
    told = play.outcome("a")["train"]
    play.ready("a")
    play.restart()
    assert play.outcome("a")["train"] == told
    play.ready("a", "b")
    assert play.view.clients == ("a", "b")


def test_who_does_not_come_back_to_a_restarted_coordinator_is_lost_after_a_while():
    play = started("a", "b")
    play.disconnect("b")
    play.restart()
    play.live(TIMEOUT_S, a=4)
    assert play.view.generation == 1
    play.live(TIMEOUT_S, a=4)
    assert steps(play) == {"a": 4}


def test_a_finished_run_is_remembered():
    play = started("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.restart()
    assert play.directive("a") == Finished("run-1")
    status = play.federation.status(play.now)
    assert (status.last_run, status.last_outcome) == ("run-1", "finished")
    assert status.num_samples == 2


def test_a_wish_is_remembered_with_its_seed():
    play = Play("a")
    play.federation.retrain(42)
    play.restart()
    assert play.federation.wanted
    assert play.federation.status(play.now).seed == 42
