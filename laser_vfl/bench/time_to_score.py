"""When a score was reached, and what a step may take at least: arithmetic of `bench wan`."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laser_vfl.planning.clocks import NetworkLine


@dataclass(frozen=True)
class StepClock:
    """When one client had applied how many steps; known now and then, and even in between."""

    steps: tuple[int, ...]
    times: tuple[float, ...]

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, Any]]) -> "StepClock":
        """Read it from the lines about steps in a client's metrics."""
        return cls(
            tuple(line["step"] for line in lines), tuple(float(line["time"]) for line in lines)
        )

    @property
    def began(self) -> float:
        """When the first step was applied, or the first that is known of."""
        return self.times[0]

    def at(self, step: int) -> float:
        """Return when this many steps had been applied."""
        if step > self.steps[-1]:
            raise ValueError(f"{step} steps were not applied, {self.steps[-1]} were")
        place = bisect_left(self.steps, step)
        if self.steps[place] == step or place == 0:
            return self.times[place]
        before, after = self.steps[place - 1], self.steps[place]
        share = (step - before) / (after - before)
        return self.times[place - 1] + share * (self.times[place] - self.times[place - 1])

    def step_s(self, warm_up: int) -> float:
        """Return the mean time of a step after the first ones; of all if there are no others."""
        first = next((s for s in self.steps[:-1] if s > warm_up), self.steps[0])
        num_steps = self.steps[-1] - first
        return (self.times[-1] - self.at(first)) / num_steps if num_steps else 0.0


def seconds_until(clocks: Sequence[StepClock], step: int) -> float:
    """Return when the last client had applied so many steps, since the first had applied one."""
    return max(clock.at(step) for clock in clocks) - min(clock.began for clock in clocks)


def first_reaching(scores: Iterable[tuple[int, float]], target: float) -> int | None:
    """Return after how many steps a score was the target or better for the first time."""
    return next((step for step, score in scores if score >= target), None)


def overlap_limit_s(compute_s: float, num_bytes: float, line: NetworkLine, pipeline: int) -> float:
    """Return what a step takes if all overlaps that may: no step can be any faster.

    `num_bytes` is what a client sends in a step, which is as much as it gets.
    """
    transfer_s = num_bytes / line.bytes_per_s
    whole_s = compute_s + line.rtt_s + transfer_s
    return max(compute_s, transfer_s, whole_s / (pipeline + 1))
