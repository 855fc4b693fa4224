"""The order of several steps under way: it is a matter of their numbers, whatever comes first."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.client.training.step_queue import StepQueue

NUM = 12


def applied_before(depth, every=NUM):
    return lambda number: max(number - depth, number - number % every)


def play(depth, chance, *, heads=(), every=NUM):
    """Play all steps, with frames that come in any order; return what was done, in order."""
    rule = applied_before(depth, every)
    queue, done, here = StepQueue(range(NUM), rule), [], set()
    arrivals = [(kind, step) for step in range(NUM) for kind in ("representations", "gradients")]
    chance.shuffle(arrivals)
    while True:
        action = queue.next(
            lambda step: ("representations", step) in here, lambda step: ("gradients", step) in here
        )
        if action == "end":
            return done
        if action == "wait":
            assert arrivals, "nothing is left to come, and it waits"
            here.add(arrivals.pop())
        elif action == "begin":
            done.append(("begin", queue.upcoming))
            queue.begun(learns=queue.upcoming in heads)
        elif action == "learn":
            done.append(("learn", queue.learning))
            queue.learnt()
        else:
            done.append(("apply", queue.oldest))
            queue.applied()


@pytest.mark.parametrize("depth", [0, 1, 3, NUM + 1])
@given(seed=st.integers(0, 10_000))
def test_a_step_begins_after_the_same_ones_were_applied_whatever_comes_first(depth, seed):
    chance = random.Random(seed)
    heads = {step for step in range(NUM) if chance.random() < 0.7}
    done = play(depth, chance, heads=heads, every=chance.choice([NUM, 5]) if depth else NUM)
    for kind in ("begin", "apply"):
        assert [step for what, step in done if what == kind] == list(range(NUM))
    assert [step for what, step in done if what == "learn"] == sorted(heads)


@given(seed=st.integers(0, 10_000), depth=st.integers(0, 7))
def test_exactly_the_steps_that_the_rule_says_are_applied_when_one_begins(seed, depth):
    done = play(depth, random.Random(seed), heads=set(range(NUM)), every=5)
    rule = applied_before(depth, 5)
    for place, (what, step) in enumerate(done):
        if what == "begin":
            applied = [number for kind, number in done[:place] if kind == "apply"]
            assert applied == list(range(rule(step)))


def test_steps_without_a_pipeline_follow_one_another():
    done = play(0, random.Random(1), heads=set(range(NUM)))
    assert done == [(what, n) for n in range(NUM) for what in ("begin", "learn", "apply")]


def test_two_under_way_take_turns():
    """One message each way for a step: the gradient of one, and the representation of the next."""
    queue = StepQueue(range(4), applied_before(1))
    yes = lambda step: True  # noqa: E731
    no = lambda step: False  # noqa: E731
    assert queue.next(no, no) == "begin"
    queue.begun(learns=True)
    assert queue.next(no, no) == "begin"
    queue.begun(learns=True)
    assert queue.next(no, yes) == "wait", "it has not learnt from the first"
    assert queue.next(yes, no) == "learn"
    queue.learnt()
    assert queue.next(no, yes) == "apply"
    queue.applied()
    assert queue.next(yes, yes) == "begin"


class Player:
    """A client whose frames take their time, with the rule of what leaves when."""

    def __init__(self, name, steps, depth, every, heads):
        self.name, self.heads = name, heads
        self.queue = StepQueue(steps, applied_before(depth, every), together=depth > 0)
        self.here, self.outbox, self.is_done = set(), [], False


@given(seed=st.integers(0, 100_000), depth=st.integers(0, 7))
def test_nobody_waits_for_ever_for_what_others_keep_back(seed, depth):
    """Some clients have a part in some steps only, some have no head, and frames take any time."""
    chance = random.Random(seed)
    names, every = range(chance.randint(2, 4)), chance.choice([NUM, 5, 3])
    concerned = [{k for k in names if chance.random() < 0.8} for _ in range(NUM)]
    heads = {k for k in names if chance.random() < 0.7} or {0}
    players = [Player(k, range(NUM), depth, every, heads) for k in names]
    on_the_way = []

    def others(k, step):
        return concerned[step] - {k} if k in concerned[step] else set()

    def flush(player, *, waits):
        if player.queue.leaves(waits=waits):
            on_the_way.extend(player.outbox)
            player.outbox.clear()
            player.queue.left()

    def go_on(player):
        k, queue, here = player.name, player.queue, player.here
        while True:
            action = queue.next(
                lambda step: {("r", step, o) for o in others(k, step)} <= here,
                lambda step: {("g", step, o) for o in others(k, step) & heads} <= here,
            )
            if action in ("wait", "end"):
                flush(player, waits=True)
                player.is_done = action == "end"
                return
            if action == "apply":
                queue.applied()
                continue
            step = queue.upcoming if action == "begin" else queue.learning
            if action == "begin":
                queue.begun(learns=k in heads and k in concerned[step])
                player.outbox += [(o, ("r", step, k)) for o in others(k, step) & heads]
            else:
                queue.learnt()
                player.outbox += [(o, ("g", step, k)) for o in others(k, step)]
            flush(player, waits=False)

    for player in players:
        go_on(player)
    while on_the_way:
        to, frame = on_the_way.pop(chance.randrange(len(on_the_way)))
        players[to].here.add(frame)
        go_on(players[to])
    assert all(player.is_done for player in players)


def test_a_gradient_and_a_later_representation_leave_together():
    queue = StepQueue(range(9), applied_before(1), together=True)
    yes, no = (lambda step: True), (lambda step: False)

    def leaves(*, waits=False):
        return queue.leaves(waits=waits) and (queue.left() is None)

    queue.begun(learns=True)
    assert not leaves()
    queue.begun(learns=True)
    assert leaves(), "the first two representations"
    queue.learnt()
    assert leaves(), "everybody waits for the gradient of the oldest step"
    queue.learnt()
    assert not leaves(waits=True), "that of the next one is early"
    assert queue.next(no, yes) == "apply"
    queue.applied()
    assert queue.next(no, yes) == "begin"
    queue.begun(learns=True)
    assert leaves(), "it goes with the next representation"


def test_a_run_may_have_more_steps_than_fit_into_memory():
    queue = StepQueue(range(2**40), applied_before(1))
    queue.begun(learns=False)
    assert queue.upcoming == 1
