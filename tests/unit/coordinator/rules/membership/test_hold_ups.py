"""Members that keep the others waiting, by the coordinator's clock, whatever they say."""

import pytest

from laser_vfl.coordinator.rules.directives import State
from laser_vfl.coordinator.rules.membership.disruption_counts import DisruptionCounts
from laser_vfl.coordinator.rules.policies import MOST_PHASES
from laser_vfl.core.errors import ContractError
from tests.support.fakes.simulated_federation import started

STEP_S = 60.0
TRAINING_STEPS = 1000


class Pair:
    """Two members: b takes its time for each step, and a waits for it."""

    def __init__(self, **keys):
        self.play = started("a", "b", step_timeout_s=STEP_S, **keys)
        self.step = 0

    def step_in(self, seconds, *, waits=True, times=1):
        """Let b take so long for a step; a waits meanwhile, or is as far and computes too."""
        play = self.play
        for _ in range(times):
            until = play.now + seconds
            begun_at = play.now
            while play.now < until and not play.stop:
                phase_s = play.now - begun_at
                waiting_for = ("b",) if waits else ()
                says = {"next_step": self.step, "num_steps": TRAINING_STEPS, "phase_s": phase_s}
                play.train("a", waiting_for=waiting_for, **says)
                play.train("b", **says)
                play.now += min(0.5, seconds)
                play.tick()
            self.step += 1
        return play.stop


def test_who_becomes_slow_goes_after_it_has_cost_the_others_five_deadlines():
    pair = Pair()
    assert pair.step_in(0.5, times=100) == 0
    begun_at = pair.play.now
    assert pair.step_in(STEP_S - 1, times=20) == 1
    assert pair.play.now - begun_at < 2 * MOST_PHASES * STEP_S
    pair.play.answer(a=pair.step, b=pair.step)
    assert pair.play.view.clients == ("a",)


def test_a_machine_that_was_always_slow_stays():
    assert Pair().step_in(STEP_S - 1, times=100) == 0


def test_a_machine_that_warms_up_stays():
    pair = Pair()
    assert pair.step_in(STEP_S - 1, times=4) == 0
    assert pair.step_in(0.2, times=300) == 0


def test_nineteen_times_as_slow_is_not_too_slow():
    pair = Pair()
    assert pair.step_in(0.5, times=100) == 0
    assert pair.step_in(9.0, times=200) == 0


def test_a_pause_that_is_over_is_forgotten():
    pair = Pair()
    for _ in range(5):
        assert pair.step_in(0.2, times=200) == 0
        assert pair.step_in(STEP_S - 1, times=2) == 0


def test_evaluation_is_compared_with_evaluation():
    """A step of it takes a hundred times as long as one of training here."""
    pair = Pair()
    assert pair.step_in(0.1, times=TRAINING_STEPS) == 0
    assert pair.step_in(15.0, times=200) == 0


def test_steps_that_nobody_waits_for_cost_nothing():
    """Steps of samples that only b has take long: a is at its own meanwhile."""
    pair = Pair()
    assert pair.step_in(0.2, times=200) == 0
    assert pair.step_in(STEP_S - 1, waits=False, times=50) == 0


@pytest.mark.parametrize("rule", [{"quorum": 2}, {"on_lost": "wait"}], ids=str)
def test_nobody_goes_for_being_slow_where_it_is_needed(rule):
    pair = Pair(**rule)
    pair.step_in(0.5, times=100)
    assert pair.step_in(STEP_S - 1, times=30) == 0


def test_an_operator_sets_the_limit():
    pair = Pair(max_slowdown=1e6)
    pair.step_in(0.5, times=100)
    assert pair.step_in(STEP_S - 1, times=30) == 0


@pytest.mark.parametrize(
    "says",
    [
        {"waiting_for": ("b",)},
        {"waiting_for": ("c",), "phase_s": 0.1},
        {"stopped": 1},
        {"state": State.JOINING},
        {"state": State.READY},
        {},
    ],
    ids=str,
)
def test_who_does_no_step_while_others_wait_goes_whatever_it_says_of_itself(says):
    """The second generation, so that there is one that b can have stopped before."""
    play = started("a", "b", "c", step_timeout_s=STEP_S)
    play.train("a", stopped=1, next_step=4)
    play.answer(b=4, c=4)
    assert play.view.generation == 2
    since, until = play.now, play.now + (MOST_PHASES + 3) * STEP_S
    while play.now < until and not play.stop:
        for name in "ac":
            play.train(name, next_step=4, waiting_for=("b",), phase_s=play.now - since)
        told = {"state": State.RUNNING, "run": play.view.run, "next_step": 4, **says}
        play.beat("b", **told)
        play.now += 0.5
        play.tick()
    assert play.stop == 2
    play.answer(a=4, b=4, c=4)
    assert play.view.clients == ("a", "c")


def test_who_says_that_it_has_done_a_step_that_others_wait_for_is_believed_once():
    """And those who truly wait are not blamed for it."""
    play = started("a", "b", "c", step_timeout_s=STEP_S)
    for generation in (1, 2):
        since = play.now
        while play.now < since + 2 * STEP_S and not play.stop:
            for name in "ac":
                play.train(name, next_step=4, waiting_for=("b",), phase_s=play.now - since)
            play.train("b", next_step=6)
            play.now += 0.5
            play.tick()
        assert play.stop == generation
        play.answer(a=4, b=4, c=4)
    assert play.view.clients == ("a", "c")


def test_no_member_has_stopped_a_generation_that_there_is_not_yet():
    play = started("a", "b")
    for run in ("run-1", ""):
        with pytest.raises(ContractError):
            play.beat("a", state=State.RUNNING, run=run, stopped=2)


def test_who_holds_up_the_others_again_waits_as_long_as_it_has_cost_them():
    play = started("a", "b", "c", step_timeout_s=10.0)
    waits = []
    for _ in range(4):
        since = play.now
        while not play.stop:
            for name in "ac":
                play.train(name, next_step=4, waiting_for=("b",), phase_s=play.now - since)
            play.train("b", next_step=4, phase_s=0.1)
            play.now += 0.5
            play.tick()
        play.answer(a=4, b=4, c=4)
        excluded_at = play.now
        assert play.view.clients == ("a", "c")
        play.come_back("b")
        while "b" not in play.view.clients:
            play.live(0.5, a=4, b=4, c=4)
        waits.append(play.now - excluded_at)
    assert waits[0] <= 2.0
    assert [round(wait_s / 50.0) for wait_s in waits[1:]] == [1, 2, 4]


def test_counts_of_the_release_before_are_taken_up():
    counts = DisruptionCounts.restore({"alarms": {"a": 2}, "cuts": {"b": 1}})
    assert counts.in_order(["b", "a"], {}) == ["a", "b"]
    counts.cut("b", "a")
    assert not counts.is_repeated(frozenset("ab"))
    again = DisruptionCounts.restore(counts.snapshot())
    assert again.is_repeated(frozenset("ab"))
    assert again.snapshot() == counts.snapshot()


def test_of_a_pair_that_cannot_go_on_together_again_the_other_goes():
    counts = DisruptionCounts()
    assert counts.in_order(["a", "b"], {}) == ["a", "b"]
    counts.cut("b", "a")
    assert counts.in_order(["a", "b"], {}) == ["b", "a"]


def test_of_such_a_pair_goes_again_whom_others_wait_for_too():
    play = started("a", "b", "c", step_timeout_s=STEP_S)
    waits = {"a": ("b",), "b": ("a",), "c": ("b",)}
    for generation in (1, 2, 3):
        since = play.now
        while not play.stop:
            for name, others in waits.items():
                play.train(name, next_step=4, waiting_for=others, phase_s=play.now - since)
            play.now += 0.5
            play.tick()
        play.answer(a=4, b=4, c=4)
        assert play.departures == [("b", "it and a cannot reach each other")] * generation
        play.come_back("b")
        while "b" not in play.view.clients:
            play.live(0.5, a=4, b=4, c=4)
