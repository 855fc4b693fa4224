"""A step as each client plans it for itself: what two of them share, they list alike."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.core.schedule.schedule import Schedule
from laser_vfl.core.schedule.step_plan import plan_step
from laser_vfl.core.subsets import clients_in, mask_of
from tests.support.oracle.core_federation import World
from tests.support.oracle.schedules import epoch_of

K = 4
observed_sets = st.lists(
    st.sets(st.integers(0, K - 1), min_size=1).map(frozenset), min_size=1, max_size=24
)
masks = st.integers(0, 2**K - 1)


@settings(max_examples=30, deadline=None)
@given(observed_sets, st.sampled_from(["mixed", "by_pattern"]), masks, masks)
def test_both_sides_of_every_pair_agree(observed, batching, participants, heads):
    world = World([set(o) for o in observed], K, heads=set())
    groups = world.alignments[0].groups
    in_group = [
        [n for n, o in enumerate(observed) if mask_of(o) == group.observed] for group in groups
    ]
    for step in epoch_of(Schedule(groups, seed=3, batch_size=7, batching=batching), 0):
        plans = {
            k: plan_step(step, alignment, client=k, participants=participants, heads=heads)
            for k, alignment in enumerate(world.alignments)
        }
        samples = [in_group[s.group][place] for s in step.segments for place in s.places]
        for k, plan in plans.items():
            held = [n for n in samples if k in observed[n]]
            if not participants >> k & 1 or not held:
                assert plan is None
                continue
            assert plan is not None
            assert world.samples(plan).tolist() == held
            seen = [mask_of(observed[n]) & participants for n in held]
            assert plan.observed_b.tolist() == seen
            assert plan.blocks == clients_in(int(np.bitwise_or.reduce(seen)))
            assert k in plan.blocks
            assert plan.num_samples == len(samples)
            assert plan.has_head == bool(heads >> k & 1)
            assert [s.peer for s in plan.shares] == [i for i in plan.blocks if i != k]
            assert [s.peer for s in plan.head_peers] == [
                s.peer for s in plan.shares if heads >> s.peer & 1
            ]
            assert plan.learns == bool(plan.has_head or plan.head_peers)
            for share in plan.shares:
                both = [n for n in held if share.peer in observed[n]]
                assert shared_samples(world, plan, share) == both
                assert share.num_rows == len(both) > 0
                assert (share.positions is None) == (both == held)
                other = plans[share.peer]
                back = next(s for s in other.shares if s.peer == k)
                assert shared_samples(world, other, back) == both


def shared_samples(world, plan, share):
    rows = world.samples(plan)
    return (rows if share.positions is None else rows[share.positions]).tolist()


def test_a_client_is_told_nothing_of_samples_that_it_does_not_hold():
    world = World([{0, 1}, {0, 1}, {1}, {1}, {0}], 2, {0, 1})
    told = world.alignments[0]
    assert told.num_rows == 3
    assert sorted(row for rows in told.rows.values() for row in rows) == [0, 1, 2]
    assert [(g.observed, g.size) for g in told.groups] == [(0b01, 1), (0b10, 2), (0b11, 2)]
    assert sorted(told.rows) == [0, 2]
