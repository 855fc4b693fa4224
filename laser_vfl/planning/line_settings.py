"""Settings that suit a line: fewer bytes a number, and batches worth their round trip.

A step waits for a round trip however few samples it has, and a score takes so many steps one after
the other. Steps under way at the same time (`training.pipeline`) hardly count as that many in the
beginning, because all of them start from the same models. A larger batch with a higher learning
rate does count.
"""

from dataclasses import dataclass, replace
from typing import Any

from laser_vfl.planning.clocks import NetworkLine
from laser_vfl.planning.forecast import Compute, Forecast, PlannedFederation, forecast
from laser_vfl.transport.message_limits import frame_bytes
from laser_vfl.transport.protocol import MAX_TENSOR_BYTES

MOST_OF_ROUND_TRIP = 0.5
"""A batch is doubled while its computing and its bytes take no more than this of a round trip."""

WORTH = 0.1
"""What has to be saved of the time."""

FEWEST_STEPS = 15
"""Of an epoch; larger batches leave too few."""


@dataclass(frozen=True)
class LineSettings:
    """What to change in `training`, and the forecast with it."""

    training: dict[str, Any]
    rate_factor: float
    """What to multiply the learning rates by: as much as the batch size."""
    forecast: Forecast


def settings_for_line(
    federation: PlannedFederation, line: NetworkLine, compute: Compute
) -> LineSettings | None:
    """Return settings for this line; None if they would save little."""
    unchanged = found = forecast(federation, line, compute)
    if not any(traffic.frames_up for traffic in found.training.traffic):
        return None
    training: dict[str, Any] = {}
    settings = federation.settings
    if settings.wire_precision == "float32":
        smaller = settings.model_copy(update={"wire_precision": "int4"})
        training["wire_precision"] = "int4" if smaller.rounding_refusal is None else "bfloat16"
    federation = replace(federation, settings=settings.model_copy(update=training))
    found, factor = forecast(federation, line, compute), 1
    while (larger := _with_batch(federation, 2 * factor)) is not None:
        slower = replace(compute, step_s=compute.step_s * 2 * factor)
        with_it = forecast(larger, line, slower)
        step = with_it.training
        busy_s = (step.compute_s + step.bandwidth_s) / step.num_steps
        if busy_s > MOST_OF_ROUND_TRIP * line.rtt_s or with_it.steps_per_epoch < FEWEST_STEPS:
            break
        found, factor = with_it, 2 * factor
    if factor > 1:
        training["batch_size"] = settings.batch_size * factor
    if not training or found.seconds > (1 - WORTH) * unchanged.seconds:
        return None
    return LineSettings(training, float(factor), found)


def _with_batch(federation: PlannedFederation, factor: int) -> PlannedFederation | None:
    """Return the federation with batches so many times as large, if their frames may be sent."""
    settings = federation.settings
    size = settings.batch_size * factor
    larger = settings.model_copy(update={"batch_size": size})
    if frame_bytes(larger, len(federation.roster)) > MAX_TENSOR_BYTES:
        return None
    return replace(federation, settings=larger)
