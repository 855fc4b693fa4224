"""What each step of a run is: an exchange of chunks, distillation, or training by the schedule."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from laser_vfl.core.alignment import Group
from laser_vfl.core.joint_svd import Chunk, chunks_of
from laser_vfl.core.schedule import Schedule, Step
from laser_vfl.core.settings import TrainingSettings


@dataclass(frozen=True)
class Moment:
    """One step of a run. Exactly one of `chunk` and `step` is there."""

    stage: Literal["joint svd", "distillation", "training"]
    step: Step | None = None
    chunk: Chunk | None = None
    progress: float = 0.0
    """The share of the stage's epochs that are done."""


class Timeline:
    """A pure function of the settings and the groups, like the schedule that it contains."""

    def __init__(
        self, settings: TrainingSettings, groups: Sequence[Group], num_clients: int
    ) -> None:
        self._schedule = Schedule(
            groups,
            seed=settings.seed,
            batch_size=settings.batch_size,
            batching=settings.batching,
            shuffle=settings.shuffle,
        )
        self._epochs = settings.epochs
        self._chunks: list[Chunk] = []
        self._distilling = 0
        if settings.method == "vfedtrans":
            self._chunks = list(chunks_of(groups, num_clients, settings.batch_size))
            self._distilling = settings.distillation_epochs
        self.steps_per_epoch = self._schedule.steps_per_epoch
        epochs = self._distilling + self._epochs
        self.num_steps = len(self._chunks) + epochs * self.steps_per_epoch

    def moment(self, number: int) -> Moment:
        """Return what step `number` of the run is."""
        if number < len(self._chunks):
            return Moment("joint svd", chunk=self._chunks[number])
        index = number - len(self._chunks)
        step = replace(self._schedule.step(index), number=number)
        epoch = index // self.steps_per_epoch
        if epoch < self._distilling:
            return Moment("distillation", step, progress=epoch / self._distilling)
        return Moment("training", step, progress=(epoch - self._distilling) / self._epochs)
