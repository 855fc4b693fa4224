"""Whole epochs of a schedule, for tests that look at all of their steps."""

from collections.abc import Iterator

from laser_vfl.core.schedule.schedule import Schedule, Step


def epoch_of(schedule: Schedule, epoch: int) -> Iterator[Step]:
    """Yield the steps of one epoch."""
    first = epoch * schedule.steps_per_epoch
    return (schedule.step(first + index) for index in range(schedule.steps_per_epoch))
