"""Settings that would make a planned run shorter, found by forecasting with each of them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from laser_vfl.planning.clocks import NetworkLine
from laser_vfl.planning.forecast import Compute, Forecast, PlannedFederation, forecast
from laser_vfl.transport.message_limits import frame_bytes
from laser_vfl.transport.protocol import MAX_TENSOR_BYTES

WORTH = 0.1
"""A hint is given when it saves at least this share of the time."""

WORTH_DEPTH = 0.25
"""What more steps under way have to save, since older gradients teach less."""


def hints_for(
    federation: PlannedFederation, line: NetworkLine, compute: Compute, found: Forecast
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


def worthwhile_pipeline(found: Forecast) -> int:
    """Return how many steps should be under way besides the oldest one; 0 if it gains little.

    Odd numbers alone: then each message carries a gradient of one step and a representation of
    another, and nobody waits in between.
    """
    training, best = found.training, 0
    seconds = training.seconds
    for depth in (1, 3):
        with_it = training.with_pipeline(depth).seconds
        if with_it > (1 - WORTH_DEPTH) * seconds:
            break
        best, seconds = depth, with_it
    return best


def _changes(
    federation: PlannedFederation, found: Forecast
) -> Iterator[tuple[dict[str, Any], float, str]]:
    """Yield a changed setting, by how much it lengthens computing, and a note for the person."""
    settings, training = federation.settings, found.training
    if not any(traffic.frames_up for traffic in found.traffic):
        return
    if settings.wire_precision == "float32":
        with_int8 = settings.model_copy(update={"wire_precision": "int8"})
        if with_int8.rounding_refusal is None:
            yield {"wire_precision": "int8"}, 1.0, "rows are rounded at random; int4 saves more"
        else:
            note = "float16 saves as much; both round what is sent"
            yield {"wire_precision": "bfloat16"}, 1.0, note
    depth = worthwhile_pipeline(found) if not settings.pipeline else 0
    if depth:
        yield {"pipeline": depth}, 1.0, "gradients are that many steps old; the rate is lowered"
    if settings.batching == "by_pattern":
        yield {"batching": "mixed"}, 1.0, "steps are fuller, and there are fewer of them"
    if training.latency_s > training.bandwidth_s:
        note = "counting twice the computing in a step; it also changes what is learnt"
        yield {"batch_size": 2 * settings.batch_size}, 2.0, note
