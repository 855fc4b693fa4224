"""Steps under way at one client, in one thread: what is possible is done, and then waited.

`training.pipeline` says how many steps may begin before the oldest one is applied; `StepQueue` has
the rule.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from laser_vfl.client.peers.step_transport import StepTransport
from laser_vfl.client.training.step_queue import StepQueue
from laser_vfl.client.training.training_step import TrainingStep


@dataclass(frozen=True)
class NumberedStep:
    """What a client does in one step of a run."""

    number: int
    participants: int
    training: TrainingStep | None = None
    """A step in which the heads learn."""
    other: Callable[[], bool] | None = None
    """Does a step of any other kind; returns whether it concerned this client."""


@dataclass(frozen=True)
class FinishedStep:
    """A step that is applied, or had nothing to do with this client."""

    number: int
    participants: int
    concerned: bool
    loss: float | None = None


class Pipeline:
    """Does steps one after the other, with several of them under way if that is allowed."""

    def __init__(
        self,
        transport: StepTransport,
        applied_before: Callable[[int], int],
        prepare: Callable[[int], NumberedStep],
        check: Callable[[], None],
        *,
        together: bool = False,
    ) -> None:
        """`prepare` readies a step; `check` raises if no further one may begin.

        With `together`, what one step sends in learning and another in beginning leaves together.
        """
        self._transport = transport
        self._applied_before = applied_before
        self._prepare = prepare
        self._check = check
        self._together = together
        self._under_way: dict[int, NumberedStep] = {}
        self._concerned: set[int] = set()

    @property
    def num_under_way(self) -> int:
        """How many steps have begun and would have to be done again."""
        return sum(step.training is not None for step in self._under_way.values())

    def run(self, numbers: range) -> Iterator[FinishedStep]:
        """Do these steps, and yield each when it is applied. Who stops iterating has to `drop`."""
        queue = StepQueue(numbers, self._applied_before, together=self._together)
        prepared: NumberedStep | None = None
        while (action := queue.next(self._has_representations, self._has_gradients)) != "end":
            if action == "apply":
                yield self._apply(queue)
            elif action == "begin":
                assert queue.upcoming is not None
                self._begin(prepared or self._prepare(queue.upcoming), queue)
                prepared = None
            elif action == "learn":
                self._learn(queue)
            else:
                self._send(queue, waits=True)
                if prepared is None and queue.upcoming is not None:  # while frames travel
                    prepared = self._prepare(queue.upcoming)
                self._wait(queue)
        self._transport.flush()

    def drop(self) -> None:
        """Drop all that is under way, without a trace."""
        while self._under_way:
            _, step = self._under_way.popitem()
            if step.training is not None:
                step.training.drop()

    def _begin(self, step: NumberedStep, queue: StepQueue) -> None:
        self._check()
        self._under_way[step.number] = step
        if step.training is not None:
            step.training.begin()
        if step.training is not None or (step.other is not None and step.other()):
            self._concerned.add(step.number)
        queue.begun(learns=step.training is not None and not step.training.has_learnt)
        self._send(queue)

    def _learn(self, queue: StepQueue) -> None:
        step = self._training(queue.learning)
        assert step is not None
        step.learn()
        queue.learnt()
        self._send(queue)

    def _apply(self, queue: StepQueue) -> FinishedStep:
        assert queue.oldest is not None
        step = self._under_way[queue.oldest]
        if step.training is not None:
            step.training.apply()
        queue.applied()
        del self._under_way[step.number]
        loss = step.training.loss if step.training else None
        concerned = step.number in self._concerned
        self._concerned.discard(step.number)
        return FinishedStep(step.number, step.participants, concerned, loss)

    def _wait(self, queue: StepQueue) -> None:
        """Wait for the gradients of the oldest step, or for what the next head learns from."""
        oldest, learning = self._training(queue.oldest), self._training(queue.learning)
        assert oldest is not None
        self._transport.wait(
            gradients=None if oldest is learning else oldest.plan,
            representations=learning.plan if learning else None,
        )

    def _has_representations(self, number: int) -> bool:
        step = self._training(number)
        return step is None or self._transport.has_representations(step.plan)

    def _has_gradients(self, number: int) -> bool:
        step = self._training(number)
        return step is None or self._transport.has_gradients(step.plan)

    def _training(self, number: int | None) -> TrainingStep | None:
        return None if number is None else self._under_way[number].training

    def _send(self, queue: StepQueue, *, waits: bool = False) -> None:
        """Have leave what is ready, unless something else will soon go with it."""
        if queue.leaves(waits=waits):
            self._transport.flush()
            queue.left()
