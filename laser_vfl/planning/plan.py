"""The plan of a run as a whole: its bytes and times, and how it could be made shorter."""

from typing import Any

from laser_vfl.client.device import num_cores
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.alignment import num_held
from laser_vfl.core.subsets import clients_in
from laser_vfl.methods.registry import method_named
from laser_vfl.planning.clocks import NetworkLine
from laser_vfl.planning.forecast import Compute, Forecast, PlannedFederation, forecast
from laser_vfl.planning.hints import hints_for
from laser_vfl.planning.line_settings import settings_for_line
from laser_vfl.planning.measured_compute import measure_blinding
from laser_vfl.planning.step_rounds import labelled_mask

POINT_BYTES = 32


def plan_run(
    config: CoordinatorConfig,
    federation: PlannedFederation,
    line: NetworkLine,
    compute: Compute,
    *,
    source: str,
    cores: int | None = None,
) -> dict[str, Any]:
    """Return what a run will send and how long it takes; docs/planning.md has the keys.

    `source` says how it is known which samples there are. With `cores`, all clients share one
    machine that has so many; without, each has this machine for itself.
    """
    found = forecast(federation, line, compute)
    return {
        "federation": config.federation,
        "settings": config.training.model_dump(mode="json"),
        "labels": list(federation.labels),
        "heads": _heads(federation),
        "samples": _samples(federation, source),
        "line": {"bytes_per_s": line.bytes_per_s, "rtt_s": line.rtt_s},
        "compute": vars(compute),
        **_times_and_bytes(federation, found),
        "alignment": _alignment(federation, config, line, cores),
        "hints": hints_for(federation, line, compute, found),
        "recommended": _recommended(federation, line, compute),
    }


def _recommended(
    federation: PlannedFederation, line: NetworkLine, compute: Compute
) -> dict[str, Any] | None:
    """Return what suits this line together, with what it takes."""
    found = settings_for_line(federation, line, compute)
    if found is None:
        return None
    return {
        "training": found.training,
        "rate_factor": found.rate_factor,
        "step_s": found.forecast.training.step_s,
        "epoch_s": found.forecast.training.seconds / federation.settings.epochs,
        "link_sent": sum(traffic.link_up for traffic in found.forecast.traffic),
    }


def _heads(federation: PlannedFederation) -> list[str]:
    """Return who predicts: in some methods it is one of those with labels."""
    method = method_named(federation.settings.method)
    mask = method.blocks.heads(labelled_mask(federation.labels, federation.roster))
    return [federation.roster[client] for client in clients_in(mask)]


def _samples(federation: PlannedFederation, source: str) -> dict[str, Any]:
    num_samples = sum(group.size for group in federation.groups)
    held = num_held(federation.groups, federation.roster)
    return {
        "num": num_samples,
        "num_test": sum(group.size for group in federation.test_groups),
        "held": held,
        "missing_share": 1 - sum(held.values()) / (num_samples * len(held)),
        "source": source,
    }


def _times_and_bytes(federation: PlannedFederation, found: Forecast) -> dict[str, Any]:
    training, total = found.training, found.traffic
    epochs = federation.settings.epochs
    steps = training.num_steps
    parts = {
        "compute": training.compute_s,
        "latency": training.latency_s,
        "bandwidth": training.bandwidth_s,
    }
    sent = {
        name: sum(getattr(traffic, f"{name}_up") for traffic in training.traffic)
        for name in ("payload", "tcp", "link", "frames")
    }
    stages = [
        {key: value for key, value in vars(stage).items() if key != "traffic"}
        | {"step_s": stage.step_s}
        for stage in found.stages
    ]
    return {
        "steps_per_epoch": found.steps_per_epoch,
        "num_steps": steps,
        "step": {
            "seconds": training.step_s,
            **{f"{name}_s": part / steps for name, part in parts.items()},
            "bound_by": max(parts, key=lambda name: parts[name]),
            **{f"{name}_sent": value / steps for name, value in sent.items()},
        },
        "epoch": {"seconds": training.seconds / epochs},
        "run": {
            "seconds": found.seconds,
            "payload_sent": sum(traffic.payload_up for traffic in total),
            "tcp_sent": sum(traffic.tcp_up for traffic in total),
            "link_sent": sum(traffic.link_up for traffic in total),
        },
        "stages": stages,
        "clients": [
            {
                "client": name,
                "step": vars(mine.times(1 / steps)),
                "epoch": vars(mine.times(1 / epochs)),
                "run": vars(whole),
            }
            for name, mine, whole in zip(federation.roster, training.traffic, total, strict=True)
        ],
    }


def _alignment(
    federation: PlannedFederation, config: CoordinatorConfig, line: NetworkLine, cores: int | None
) -> dict[str, Any]:
    """Estimate the alignment before training.

    By points, each client brings its own people to the curve and blinds the list of everybody.
    """
    roster = federation.roster
    num_rows = sum(
        sum(num_held(groups, roster).values())
        for groups in (federation.groups, federation.test_groups)
    )
    num_clients = len(roster)
    if config.alignment != "ecdh":
        num_bytes = num_rows * POINT_BYTES // num_clients
        return {
            "scheme": config.alignment,
            "seconds": num_bytes / line.bytes_per_s,
            "sent": num_bytes,
        }
    share = num_clients / cores if cores else 1 / num_cores()
    hash_s, multiplication_s = measure_blinding()
    compute_s = num_rows * (hash_s / num_clients + multiplication_s) * share
    num_bytes = num_rows * POINT_BYTES
    seconds = max(compute_s, num_bytes / line.bytes_per_s) + num_clients * line.rtt_s
    return {"scheme": "ecdh", "seconds": seconds, "sent": num_bytes}
