"""The schedule: every sample once, the same for everybody, any step alone."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.core.alignment import Group
from laser_vfl.core.schedule.schedule import Schedule, in_order
from tests.support.oracle.core_federation import World
from tests.support.oracle.schedules import epoch_of

BATCHINGS = ["mixed", "by_pattern"]


@st.composite
def groups_of(draw):
    masks = draw(st.sets(st.integers(1, 2**10 - 1), min_size=1, max_size=8))
    return tuple(Group(mask, draw(st.integers(1, 30))) for mask in sorted(masks))


several = settings(max_examples=20, deadline=None)
schedules = given(
    groups_of(), st.integers(1, 40), st.integers(0, 2**63 - 1), st.sampled_from(BATCHINGS)
)


def places(step):
    return [(s.group, int(place)) for s in step.segments for place in s.places]


def every_place(groups):
    return [(g, place) for g, group in enumerate(groups) for place in range(group.size)]


@several
@schedules
def test_an_epoch_covers_every_sample_of_every_group_once(groups, batch_size, seed, batching):
    schedule = Schedule(groups, seed=seed, batch_size=batch_size, batching=batching)
    for epoch in (0, 3):
        steps = list(epoch_of(schedule, epoch))
        first = epoch * schedule.steps_per_epoch
        assert [s.number for s in steps] == list(range(first, first + len(steps)))
        assert len(steps) == schedule.steps_per_epoch
        assert sorted(chain.from_iterable(map(places, steps))) == every_place(groups)
        for step in steps:
            assert 1 <= step.num_samples <= batch_size
            segments = [segment.group for segment in step.segments]
            assert segments == sorted(set(segments))
            if batching == "by_pattern":
                assert len(segments) == 1
    num_samples = sum(group.size for group in groups)
    if batching == "mixed":
        assert schedule.steps_per_epoch == -(-num_samples // batch_size)
        assert [s.num_samples for s in steps[:-1]] == [batch_size] * (len(steps) - 1)


@several
@schedules
def test_it_needs_only_sizes_and_seed_and_any_step_can_be_had_alone(
    groups, batch_size, seed, batching
):
    def schedule(of=groups):
        return Schedule(of, seed=seed, batch_size=batch_size, batching=batching)

    one = schedule()
    numbers = range(2 * one.steps_per_epoch)
    steps = [places(one.step(t)) for t in numbers]
    backwards = schedule()
    assert [places(backwards.step(t)) for t in reversed(numbers)] == steps[::-1]
    assert [places(schedule().step(t)) for t in numbers[:: max(1, len(numbers) // 3)]] == steps[
        :: max(1, len(numbers) // 3)
    ]
    # Who holds a group does not matter to when it comes.
    elsewhere = schedule([Group(2**20 + g, group.size) for g, group in enumerate(groups)])
    assert [places(elsewhere.step(t)) for t in numbers] == steps


@pytest.mark.parametrize("batching", BATCHINGS)
def test_every_client_computes_the_same_from_what_it_is_told(batching):
    world = World([{0, 1}, {0}, {1, 2}, {2}, {0, 1, 2}] * 6, 3, {0})
    told = [alignment.groups for alignment in world.alignments]
    assert told[0] == told[1] == told[2]
    for client, alignment in enumerate(world.alignments):
        assert all(alignment.groups[g].observed >> client & 1 for g in alignment.rows)
    sequences = [
        [places(s) for s in epoch_of(Schedule(g, seed=1, batch_size=4, batching=batching), 0)]
        for g in told
    ]
    assert sequences[0] == sequences[1] == sequences[2]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_epochs_and_seeds_differ(batching):
    groups = (Group(0b01, 40), Group(0b11, 40))

    def epoch(number, seed=5):
        schedule = Schedule(groups, seed=seed, batch_size=8, batching=batching)
        return [places(step) for step in epoch_of(schedule, number)]

    assert epoch(0) != epoch(1)
    assert epoch(0) != epoch(0, seed=6)
    assert epoch(0) != [sorted(step) for step in epoch(0)]


def test_batches_of_all_groups_are_shuffled_into_one_sequence():
    groups = (Group(0b01, 100), Group(0b10, 100))
    schedule = Schedule(groups, seed=5, batch_size=10, batching="by_pattern")
    order = [step.segments[0].group for step in epoch_of(schedule, 0)]
    assert sorted(order) == [0] * 10 + [1] * 10
    assert order != sorted(order)


def test_a_mixed_batch_is_drawn_in_proportion():
    groups = (Group(0b01, 3000), Group(0b10, 1000))
    schedule = Schedule(groups, seed=5, batch_size=400, batching="mixed")
    counts = [len(step.segments[1].places) for step in epoch_of(schedule, 0)]
    # 100 expected, with a standard deviation of about 8.2.
    assert all(60 < count < 140 for count in counts)


@several
@given(groups_of(), st.integers(1, 40))
def test_in_order_covers_each_sample_once_unshuffled(groups, batch_size):
    steps = list(in_order(groups, batch_size))
    assert list(chain.from_iterable(map(places, steps))) == every_place(groups)
    assert [step.number for step in steps] == list(range(len(steps)))
    assert all(step.num_samples == batch_size for step in steps[:-1])


def test_an_empty_table_has_no_steps():
    assert list(in_order((), 8)) == []
    for batching in BATCHINGS:
        assert Schedule((), seed=0, batch_size=8, batching=batching).steps_per_epoch == 0


def test_places_are_numbers_that_index_rows():
    schedule = Schedule((Group(1, 5),), seed=0, batch_size=2, batching="mixed")
    rows = np.arange(5) * 10
    found = [row for step in epoch_of(schedule, 0) for s in step.segments for row in rows[s.places]]
    assert sorted(found) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("batching", BATCHINGS)
def test_batches_that_are_shuffled_once_come_again_in_every_epoch(batching):
    options = {"seed": 3, "batch_size": 8, "batching": batching}
    groups = (Group(1, 20), Group(3, 30))
    anew, once = Schedule(groups, **options), Schedule(groups, **options, shuffle="once")
    first = [places(step) for step in epoch_of(anew, 0)]
    assert [places(step) for step in epoch_of(once, 0)] == first
    assert [places(step) for step in epoch_of(once, 4)] == first
    assert [places(step) for step in epoch_of(anew, 4)] != first
    steps = once.steps_per_epoch
    assert [step.number for step in epoch_of(once, 4)] == list(range(4 * steps, 5 * steps))
