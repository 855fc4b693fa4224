"""What each step of a run is: a step of the method's preparation, or a batch to train heads on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from laser_vfl.core.alignment import Group
from laser_vfl.core.preparation import ExchangeStep, Preparation
from laser_vfl.core.schedule.schedule import Schedule, Step
from laser_vfl.core.settings import AlgorithmSettings

StageKind = Literal["exchange", "alone", "training"]


@dataclass(frozen=True)
class TimelineStage:
    """A part of a run, in which all steps are of one kind."""

    kind: StageKind
    name: str
    first: int
    num_steps: int


@dataclass(frozen=True)
class ScheduledStep:
    """One step of a run: an exchange, or a batch of samples for any other kind of stage."""

    kind: StageKind
    batch: Step | None = None
    exchange: ExchangeStep | None = None
    progress: float = 0.0
    """The share of the stage's epochs that are done."""


class Timeline:
    """A pure function of the settings and the groups, like the schedule that it contains."""

    def __init__(
        self,
        preparation: Preparation,
        settings: AlgorithmSettings,
        groups: Sequence[Group],
        num_clients: int,
    ) -> None:
        self._schedule = Schedule(
            groups,
            seed=settings.seed,
            batch_size=settings.batch_size,
            batching=settings.batching,
            shuffle=settings.shuffle,
        )
        self._exchanges = preparation.exchanges(settings, groups, num_clients)
        self._pipeline = settings.pipeline
        self._drained_every = settings.checkpoint_every
        self._local_epochs = preparation.local_epochs(settings)
        self._epochs = settings.epochs
        self.steps_per_epoch = self._schedule.steps_per_epoch
        num_exchanges = len(self._exchanges)
        num_local = self._local_epochs * self.steps_per_epoch
        num_training = self._epochs * self.steps_per_epoch
        self.num_steps = num_exchanges + num_local + num_training
        every = (
            TimelineStage("exchange", preparation.exchange_stage, 0, num_exchanges),
            TimelineStage("alone", preparation.local_stage, num_exchanges, num_local),
            TimelineStage("training", "training", num_exchanges + num_local, num_training),
        )
        self.stages = tuple(stage for stage in every if stage.num_steps or stage.kind == "training")
        self._training_begins = num_exchanges + num_local

    def step(self, number: int) -> ScheduledStep:
        """Return what step `number` of the run is."""
        if number < len(self._exchanges):
            return ScheduledStep("exchange", exchange=self._exchanges[number])
        index = number - len(self._exchanges)
        batch = replace(self._schedule.step(index), number=number)
        epoch = index // self.steps_per_epoch
        if epoch < self._local_epochs:
            return ScheduledStep("alone", batch, progress=epoch / self._local_epochs)
        return ScheduledStep(
            "training", batch, progress=(epoch - self._local_epochs) / self._epochs
        )

    def applied_before(self, number: int) -> int:
        """Return the step up to which all are applied when step `number` begins, and no later one.

        That is `pipeline` steps before it. None is under way at a checkpoint, nor when training
        begins, nor before.
        """
        begun = self._training_begins
        if number < begun:
            return number
        drained = number - number % self._drained_every
        return max(number - self._pipeline, drained, begun)
