"""What would make a planned run shorter, where arithmetic alone says so."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from laser_vfl.cli.plan_clocks import Line
from laser_vfl.cli.plan_forecast import Compute, Federation, Forecast, forecast
from laser_vfl.wire.protocol import MAX_TENSOR_BYTES
from laser_vfl.wire.sizes import frame_bytes

WORTH = 0.1
"""A hint is given when it saves at least this share of the time."""


def hints_for(
    federation: Federation, line: Line, compute: Compute, found: Forecast
) -> list[dict[str, Any]]:
    """Return settings that would save time: the key, its value, seconds and bytes with it."""
    hints = []
    for change, slower, note in _changes(federation, found):
        settings = federation.settings.model_copy(update=change)
        other = replace(federation, settings=settings)
        if frame_bytes(settings, len(federation.roster)) > MAX_TENSOR_BYTES:
            continue
        with_it = forecast(other, line, replace(compute, step_s=compute.step_s * slower))
        if with_it.seconds > (1 - WORTH) * found.seconds:
            continue
        ((key, value),) = change.items()
        hints.append(
            {
                "key": f"training.{key}",
                "value": value,
                "seconds": with_it.seconds,
                "link_sent": sum(traffic.link_up for traffic in with_it.traffic),
                "note": note,
            }
        )
    return hints


def _changes(
    federation: Federation, found: Forecast
) -> Iterator[tuple[dict[str, Any], float, str]]:
    """Yield a change, how many times longer a step may then compute, and what to know of it."""
    settings, training = federation.settings, found.training
    if not any(traffic.frames_up for traffic in found.traffic):
        return
    if settings.wire_precision == "float32":
        yield {"wire_precision": "bfloat16"}, 1.0, "float16 saves as much; both round what is sent"
    if settings.batching == "by_pattern":
        yield {"batching": "mixed"}, 1.0, "steps are fuller, and there are fewer of them"
    if training.latency_s > training.bandwidth_s:
        note = "counting twice the computing in a step; it also changes what is learnt"
        yield {"batch_size": 2 * settings.batch_size}, 2.0, note
