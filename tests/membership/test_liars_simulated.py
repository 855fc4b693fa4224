"""Schedules with members that do not keep to the rules: the honest ones finish all the same."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from lying_clients import (
    LingeringClient,
    LyingClient,
    RestlessClient,
    RunawayClient,
    SlowClient,
    SlowingClient,
)
from test_membership_simulated import FIRST, LAST, draw_faults
from world import World

from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.run_start import StartRule

BATCH = 25
"""So many seeds make one test."""

POLICY = MembershipPolicy(step_timeout_s=3.0)
BOUND_S = 600.0
"""In which honest members finish: many times what they need alone, and far from for ever."""

MOST_LOSSES = 10
"""How often one honest member may be the one of a pair that has to go: 8 in 2,000 schedules."""

STORIES = [name.removeprefix("_say_") for name in dir(LyingClient) if name.startswith("_say_")]


def telling(*stories):
    """A liar that tells these stories."""
    return type("Liar", (LyingClient,), {"stories": stories})


def draw_liars(seed):
    """Draw how many clients there are, and which of them lie: fewer than half."""
    rng = random.Random(f"liars {seed}")
    num_clients = rng.randint(3, 5)
    names = [f"c{k}" for k in range(num_clients)]
    return num_clients, rng.sample(names, rng.randint(1, (num_clients - 1) // 2))


def play(seed, *, with_faults=False):
    num_clients, liars = draw_liars(seed)
    classes = dict.fromkeys(liars, LyingClient)
    world = World(seed, num_clients=num_clients, liars=classes, policy=POLICY)
    faults = [f for f in draw_faults(seed, world.names) if f[1] != "death"] if with_faults else []
    world.run(faults, within_s=BOUND_S)
    if not with_faults:
        check_blame(world)
    return world


def check_blame(world):
    """Nobody honest is blamed for waiting: at most it is one of a pair, and the other one lies.

    Of two that say that they wait for each other nobody can tell which of them does.
    """
    liars = set(world.names) - world.honest.keys()
    losses = Counter()
    for gone in world.departures:
        if gone.client in world.honest:
            losses[gone.client] += 1
            together = gone.reason.replace(",", "").split()
            if "cannot reach" not in gone.reason and "wait for each other" not in gone.reason:
                world.fail(f"{gone.client} was blamed: {gone.reason}")
            if not liars & set(together):
                world.fail(f"{gone.client} was lost without a liar: {gone.reason}")
    if max(losses.values(), default=0) > MOST_LOSSES:
        world.fail(f"honest members had to go too often: {losses}")


@pytest.mark.parametrize("first", range(FIRST, LAST, BATCH))
def test_whatever_some_say_the_honest_members_finish_and_are_not_blamed(first):
    """Half of the schedules have faults besides."""
    seeds = range(first, min(first + BATCH, LAST))
    worlds = [play(seed, with_faults=seed % 2 == 1) for seed in seeds]

    # Or they would show nothing.
    assert any(gone.client not in w.honest for w in worlds for gone in w.departures)


def test_liars_go_and_honest_members_stay():
    """Mostly, in schedules without faults of their own; and some have more than one liar."""
    worlds = [play(seed) for seed in range(1_000_000, 1_000_060)]
    went = [gone.client in w.honest for w in worlds for gone in w.departures]
    assert went.count(False) > went.count(True)
    assert any(len(world.names) - len(world.honest) > 1 for world in worlds)


@pytest.mark.parametrize("story", STORIES)
def test_each_story_alone(story):
    """Told by a member in the middle of the roster that sends nothing from the start."""
    world = World(7, num_clients=3, liars={"c1": telling(story)}, policy=POLICY)
    liar = world.clients["c1"]
    liar.first_lie, liar.starved, liar.target = 0, {"c0", "c2"}, "c0"
    world.observed = [frozenset(world.names)] * world.num_steps
    world.run([], within_s=BOUND_S)
    check_blame(world)
    departures = world.federation.status(world.now).departures
    assert {gone.client for gone in departures} >= {"c1"}


@pytest.mark.parametrize("num_clients", [2, 3, 4])
def test_who_has_done_all_steps_and_counts_on_is_left_out(num_clients):
    """It does its part until the others have finished, and then tells of ever more steps."""
    world = World(7, num_clients=num_clients, liars={"c1": telling("counts_on")}, policy=POLICY)
    liar = world.clients["c1"]
    liar.first_lie, liar.starved = world.num_steps, set()
    world.observed = [frozenset(world.names)] * world.num_steps
    world.run([], within_s=60.0)
    assert [gone.client for gone in world.federation.status(world.now).departures] == ["c1"]


def test_two_that_count_on_and_one_that_has_finished_nowhere_are_no_majority():
    """What one liar takes for the end does not count against honest members."""
    liars = {"c0": telling("finished_nowhere"), "c1": telling("counts_on")}
    world = World(7, num_clients=5, num_steps=40, liars=liars, policy=POLICY)
    for name in liars:
        world.clients[name].first_lie, world.clients[name].starved = 0, set()
    world.run([], within_s=BOUND_S)
    check_blame(world)


def test_two_liars_wait_for_each_other_and_then_for_somebody_honest():
    """The first says that it waits for the second, and that one for an honest member."""
    liars = {"c0": telling("waits"), "c1": telling("waits_long")}
    world = World(3, num_clients=5, liars=liars, policy=POLICY)
    for name, target in (("c0", "c1"), ("c1", "c4")):
        world.clients[name].first_lie, world.clients[name].target = 2, target
        world.clients[name].starved = {"c2", "c3", "c4"}
    world.observed = [frozenset(world.names)] * world.num_steps
    world.run([], within_s=BOUND_S)
    check_blame(world)


def begun_without(seed, kind):
    """Play a schedule whose run may start without liars, who lie before its first step."""
    num_clients, liars = draw_liars(seed)
    start = StartRule(num_clients - len(liars), 5.0)
    policy = replace(POLICY, ready_s=30.0)
    classes = dict.fromkeys(liars, kind)
    world = World(seed, num_clients=num_clients, liars=classes, policy=policy, start=start)
    world.run([], within_s=BOUND_S)
    check_blame(world)
    return world


@pytest.mark.parametrize("first", range(FIRST, LAST, BATCH))
def test_who_does_not_get_ready_keeps_nobody_from_training(first):
    for seed in range(first, min(first + BATCH, LAST)):
        begun_without(seed, LingeringClient)


@pytest.mark.parametrize("manner", LingeringClient.manners)
def test_who_never_gets_ready_is_not_waited_for(manner):
    kind = type("Lingering", (LingeringClient,), {"manners": (manner,)})
    start = StartRule(2, 1.0)
    policy = replace(POLICY, ready_s=30.0)
    world = World(7, num_clients=3, liars={"c1": kind}, policy=policy, start=start)
    world.clients["c1"].lingers_s = 1e9
    world.run([], within_s=60.0)
    assert world.now > 130.0, "after it was given up"
    assert world.federation.status(world.now).members == ("c0", "c2")


def test_who_dies_before_each_first_step_keeps_nobody_from_training():
    for seed in range(10):
        begun_without(seed, RunawayClient)


@pytest.mark.parametrize("who", ["c0", "c2"])
def test_who_leaves_and_rejoins_without_end_is_taken_in_ever_more_rarely(who):
    world = World(1, num_clients=3, num_steps=1500, liars={who: RestlessClient}, policy=POLICY)
    world.run([], within_s=700.0)
    assert world.now - 100.0 > 300.0, "long enough to see it"
    assert 2 * POLICY.free_visits < world.counts["changes"] < 60


@pytest.mark.parametrize("story", ["deaf_and_leaving", "leaves_late", "stays_after_all"])
def test_who_makes_all_stop_and_does_not_stop_itself_costs_ever_less(story):
    """Each refusal costs the others up to a step timeout, and nobody may do that at will."""
    policy = MembershipPolicy(step_timeout_s=10.0)

    def training_takes(liars):
        world = World(7, num_clients=3, num_steps=1000, liars=liars, policy=policy)
        for name in liars:
            world.clients[name].first_lie, world.clients[name].starved = 0, set()
        world.observed = [frozenset(world.names)] * world.num_steps
        world.run([], within_s=20_000.0)
        return world.now - 100.0

    assert training_takes({"c1": telling(story)}) < 1.2 * training_takes({})


def slowing(policy, within_s, kind=SlowingClient):
    world = World(5, num_clients=3, num_steps=400, liars={"c1": kind}, policy=policy)
    world.observed = [frozenset(world.names)] * world.num_steps
    world.run([], within_s=within_s)
    return world


def test_who_becomes_much_slower_than_it_was_does_not_slow_down_the_others_for_ever():
    """Each of its steps takes less than a deadline; 200 of them would take 1000 s."""
    world = slowing(replace(POLICY, max_slowdown=5.0), 500.0)
    assert {gone.client for gone in world.departures} == {"c1"}


def test_who_is_as_slow_as_it_always_was_is_left_in_peace():
    world = slowing(replace(POLICY, max_slowdown=2.0), 4000.0, SlowClient)
    assert world.departures == []
    assert world.now > 1500.0


def test_an_operator_may_lift_the_limit():
    world = slowing(replace(POLICY, max_slowdown=1e6), 4000.0)
    assert world.departures == []
