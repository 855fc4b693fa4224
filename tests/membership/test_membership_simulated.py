"""Thousands of schedules of faults against the real rules: nothing deadlocks, everybody agrees."""

import os
import random
from collections import Counter

import pytest
from world import World

FIRST, LAST = map(int, os.environ.get("LASER_VFL_SCHEDULES", "0-200").split("-"))
"""The seeds from the first to before the last; `make test` and the rest of CI share them out."""

BATCH = 100
"""So many seeds make one test."""


KINDS = (
    "crash",
    "crash",
    "death",
    "hang",
    "slow",
    "cut",
    "leave",
    "coordinator",
    "pause",
    "apart",
    "island",
    "ambush",
)
MOMENTS = ("stop", "view", "answer", "begin")


def draw_faults(seed, names):
    """Draw what happens: up to eight faults within a few seconds, or at the worst moment."""
    rng = random.Random(f"faults {seed}")
    faults = []
    for _ in range(rng.randint(0, 8)):
        at, seconds, name = rng.uniform(0.2, 5.0), rng.uniform(0.05, 8.0), rng.choice(names)
        what = rng.choice(KINDS)
        if what in ("coordinator", "pause"):
            faults.append((at, what, seconds))
        elif what == "death":
            faults.append((at, what, name))
        elif what == "cut":
            faults.append((at, what, *rng.sample(names, 2), seconds))
        elif what == "apart":
            faults.append((at, "cut", name, "coordinator", seconds))
        elif what == "ambush":
            what = rng.choice(["coordinator", "coordinator", "pause", "crash", "hang"])
            victim = rng.choice(["", name]) if what in ("crash", "hang") else ""
            moment = rng.choice(
                MOMENTS if victim or what in ("coordinator", "pause") else MOMENTS[2:]
            )
            faults.append((0.0, "ambush", moment, what, victim, seconds))
        else:
            faults.append((at, what, name, seconds))
    return sorted(faults, key=lambda fault: fault[0])


def play(seed):
    world = World(seed)
    world.run(draw_faults(seed, world.names))
    return world


@pytest.mark.parametrize("first", range(FIRST, LAST, BATCH))
def test_whatever_happens_the_run_ends_and_all_agree(first):
    worlds = [play(seed) for seed in range(first, min(first + BATCH, LAST))]

    # Or they would show nothing: members change, steps are begun again, and some see no fault.
    counts = sum((Counter(world.counts) for world in worlds), Counter())
    assert counts["changes"] > len(worlds) / 2
    assert counts["redone"] > len(worlds) / 10
    assert counts["deaths"] > 0
    assert any(not any("fault:" in line for line in world.story) for world in worlds)


def test_who_was_left_out_comes_back_though_the_next_view_is_ending_already():
    """Three, of whom two have to be there: one was away for a while, and another dies meanwhile."""
    worlds = [World(seed, num_clients=3) for seed in range(40)]
    worlds = [w for w in worlds if (w.policy.quorum, w.policy.on_lost) == (2, "continue")]
    for number, world in enumerate(worlds):
        world.run([(1.0, "island", "c2", 5.0), (2.5 + 0.2 * number, "death", "c0")])
    assert sum(world.counts["deaths"] for world in worlds) > 5
