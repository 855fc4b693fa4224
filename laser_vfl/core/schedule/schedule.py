"""Which samples make up which step: a pure function that every client computes for itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from laser_vfl.core.alignment import Group
from laser_vfl.core.randomness import RandomStream, random_permutation
from laser_vfl.core.settings import Batching, Shuffle

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """The samples of one group in one step, by their places in the group."""

    group: int
    places: Places


@dataclass(frozen=True)
class Step:
    """One step: a segment for each observed set in it, in the order of the groups."""

    number: int
    segments: tuple[Segment, ...]

    @property
    def num_samples(self) -> int:
        """How many samples the step has, over all clients."""
        return sum(len(segment.places) for segment in self.segments)


class Schedule:
    """The steps of every epoch of a run; `step(t)` can be asked for any t, in any order."""

    def __init__(
        self,
        groups: Sequence[Group],
        *,
        seed: int,
        batch_size: int,
        batching: Batching,
        shuffle: Shuffle = "every_epoch",
    ) -> None:
        self._groups = tuple(groups)
        self._seed = seed
        self._batch_size = batch_size
        self._batching = batching
        self._shuffle = shuffle
        self._epoch = -1
        self._steps: list[list[Segment]] = []
        sizes = [group.size for group in groups]
        self.steps_per_epoch = (
            _num_batches(sum(sizes), batch_size)
            if batching == "mixed"
            else sum(_num_batches(size, batch_size) for size in sizes)
        )

    def step(self, number: int) -> Step:
        """Return step `number` of the run, counted over all epochs."""
        epoch, index = divmod(number, self.steps_per_epoch)
        if self._shuffle == "once":
            epoch = 0
        if epoch != self._epoch:
            shuffle = self._mixed if self._batching == "mixed" else self._by_pattern
            self._steps, self._epoch = shuffle(epoch), epoch
        return Step(number, tuple(self._steps[index]))

    def _mixed(self, epoch: int) -> list[list[Segment]]:
        group_of, place_of = _all_places(self._groups)
        order = self._shuffled(len(group_of), epoch)
        return [
            _segments(group_of[order[start:stop]], place_of[order[start:stop]])
            for start, stop in _cuts(len(order), self._batch_size)
        ]

    def _by_pattern(self, epoch: int) -> list[list[Segment]]:
        """Shuffle all places at once: restricted to one group, that shuffles the group."""
        group_of, place_of = _all_places(self._groups)
        order = self._shuffled(len(group_of) + self.steps_per_epoch, epoch)
        samples, batches = order[order < len(group_of)], order[order >= len(group_of)]
        steps: list[list[Segment]] = []
        for segment in _segments(group_of[samples], place_of[samples]):
            for start, stop in _cuts(len(segment.places), self._batch_size):
                steps.append([Segment(segment.group, segment.places[start:stop])])
        return [steps[batch - len(group_of)] for batch in batches]

    def _shuffled(self, num: int, epoch: int) -> npt.NDArray[np.intp]:
        return random_permutation(num, seed=self._seed, stream=RandomStream.SCHEDULE, counter=epoch)


def in_order(groups: Sequence[Group], batch_size: int) -> Iterator[Step]:
    """Yield each sample once, unshuffled: how a test table is walked through."""
    group_of, place_of = _all_places(groups)
    for number, (start, stop) in enumerate(_cuts(len(group_of), batch_size)):
        yield Step(number, tuple(_segments(group_of[start:stop], place_of[start:stop])))


def _num_batches(num: int, batch_size: int) -> int:
    return -(-num // batch_size)


def _cuts(num: int, batch_size: int) -> list[tuple[int, int]]:
    return [(start, min(start + batch_size, num)) for start in range(0, num, batch_size)]


def _all_places(groups: Sequence[Group]) -> tuple[Places, Places]:
    sizes = [group.size for group in groups]
    group_of = np.repeat(np.arange(len(groups)), sizes)
    place_of = np.concatenate([np.arange(size) for size in sizes] or [np.arange(0)])
    return group_of, place_of


def _segments(group_of: Places, place_of: Places) -> list[Segment]:
    order = np.argsort(group_of, kind="stable")
    group_of, place_of = group_of[order], place_of[order]
    starts = np.flatnonzero(np.diff(group_of, prepend=-1))
    return [
        Segment(int(group_of[start]), places)
        for start, places in zip(starts, np.split(place_of, starts[1:]), strict=True)
    ]
