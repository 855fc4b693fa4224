"""`plan`: what a run will send and how long it will take, before anybody starts one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.cli.own_daemon import own_coordinator
from laser_vfl.cli.plan_clocks import Line
from laser_vfl.cli.plan_compute import measure_compute, measure_multiplication
from laser_vfl.cli.plan_forecast import Compute, Federation, Forecast, forecast
from laser_vfl.cli.plan_groups import drawn_groups, groups_of_overlaps
from laser_vfl.cli.plan_hints import hints_for
from laser_vfl.cli.plan_text import print_plan
from laser_vfl.cli.plan_walk import labelled_mask
from laser_vfl.cli.quantities import parse_bandwidth, parse_latency, parse_names, parse_shares
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import num_cores
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.alignment import Group, num_held
from laser_vfl.core.errors import AddressError, ConfigError, DataError, NotReady
from laser_vfl.core.subsets import clients_in
from laser_vfl.methods import method_named
from laser_vfl.remote.operations import coordinator_status

ASSUMED_SAMPLES = 10_000
POINT_BYTES = 32


@dataclass(frozen=True)
class PlanOptions:
    """What a person says of a run that has not begun."""

    config: Path
    bandwidth: str
    rtt: str
    samples: int | None = None
    test_samples: int = 0
    p_missing: str | None = None
    overlaps: Path | None = None
    running: bool = False
    labels: str | None = None
    compute: str | None = None
    client_config: Path | None = None
    features: int = 64
    cores: int | None = None


def run_plan(options: PlanOptions, *, as_json: bool) -> None:
    """Forecast and print."""
    plan = make_plan(options)
    if as_json:
        print(json.dumps(plan, ensure_ascii=False))
    else:
        print_plan(plan, Console())


def make_plan(options: PlanOptions) -> dict[str, Any]:
    """Return the forecast of a run, as `--format json` prints it; docs/planning.md has the keys."""
    _check(options)
    line = Line(
        parse_bandwidth(options.bandwidth, "--bandwidth"), parse_latency(options.rtt, "--rtt")
    )
    config = load_config(options.config, CoordinatorConfig)
    client = load_config(options.client_config, ClientConfig) if options.client_config else None
    federation, source = _federation(options, config, client)
    if options.compute is not None:
        compute = Compute(parse_latency(options.compute, "--compute"))
    else:
        compute = measure_compute(federation, client, options.features, options.cores)
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
        "alignment": _alignment(federation, config, line, options.cores),
        "hints": hints_for(federation, line, compute, found),
    }


def _check(options: PlanOptions) -> None:
    ways = {
        "--samples": options.samples is not None,
        "--overlaps": options.overlaps is not None,
        "--running": options.running,
    }
    given = [way for way, is_given in ways.items() if is_given]
    if len(given) > 1:
        raise ConfigError(
            f"{' and '.join(given)} both say how many samples there are", hint="keep one of them"
        )
    if options.p_missing is not None and given not in ([], ["--samples"]):
        raise ConfigError(
            f"{given[0]} says already which blocks are missing", hint="drop --p-missing"
        )
    if options.compute is not None and options.client_config is not None:
        raise ConfigError(
            "--compute and --client-config both say how long a step computes",
            hint="keep one of them",
        )


def _federation(
    options: PlanOptions, config: CoordinatorConfig, client: ClientConfig | None
) -> tuple[Federation, str]:
    roster = tuple(config.clients)
    labels = roster
    tests: tuple[Group, ...] = ()
    if options.overlaps is not None:
        groups = groups_of_overlaps(options.overlaps, roster, "train")
        tests = groups_of_overlaps(options.overlaps, roster, "test")
        source = f"the overlaps in {options.overlaps.name}"
    elif options.running:
        num_samples, missing, labels = _of_running(options.config, roster)
        groups = drawn_groups(num_samples, missing)
        source = "the last run of the coordinator; blocks are taken to be missing independently"
    else:
        missing = parse_shares(options.p_missing or "0", roster, "--p-missing")
        groups = drawn_groups(options.samples or ASSUMED_SAMPLES, missing)
        source = "given" if options.samples else "assumed: give --samples"
    if options.test_samples and options.overlaps is None:
        tests = drawn_groups(options.test_samples, missing)
    if not groups:
        raise DataError("there are no training samples", where=str(options.overlaps))
    if options.labels is not None:
        labels = tuple(parse_names(options.labels, roster, "--labels"))
    elif client is not None and client.data.label is None:
        labels = tuple(name for name in labels if name != client.name)
    if client is not None and client.data.label is None and client.name in labels:
        raise ConfigError(f"--labels: {client.name} has no data.label in its configuration")
    if not labels:
        raise ConfigError("nobody has labels", hint="name those who have them with --labels")
    is_secure = config.tls is not None
    return Federation(config.training, roster, labels, groups, tests, is_secure), source


def _of_running(path: Path, roster: tuple[str, ...]) -> tuple[int, list[float], tuple[str, ...]]:
    """Ask the coordinator how many samples its last run had, who held them, and who has labels."""
    daemon = own_coordinator(path)
    try:
        status = coordinator_status(daemon.address, daemon.access)
    except AddressError:
        raise daemon.not_up() from None
    num_samples = status["num_samples"]
    if not num_samples:
        raise NotReady(
            "the coordinator has not aligned any samples yet",
            hint="use --overlaps with the JSON of `laser-vfl align --dry-run`, or --samples",
        )
    clients = {client["client"]: client for client in status["clients"]}
    held = [clients[name]["num_samples"] or 0 for name in roster]
    labels = tuple(name for name in roster if clients[name]["has_head"])
    missing = [min(1 - one / num_samples, 1 - 1e-9) for one in held]
    return num_samples, missing, labels or roster


def _heads(federation: Federation) -> list[str]:
    """Return who predicts: in some methods it is one of those with labels."""
    method = method_named(federation.settings.method)
    mask = method.heads(labelled_mask(federation.labels, federation.roster))
    return [federation.roster[client] for client in clients_in(mask)]


def _samples(federation: Federation, source: str) -> dict[str, Any]:
    num_samples = sum(group.size for group in federation.groups)
    held = num_held(federation.groups, federation.roster)
    return {
        "num": num_samples,
        "num_test": sum(group.size for group in federation.test_groups),
        "held": held,
        "missing_share": 1 - sum(held.values()) / (num_samples * len(held)),
        "source": source,
    }


def _times_and_bytes(federation: Federation, found: Forecast) -> dict[str, Any]:
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
    federation: Federation, config: CoordinatorConfig, line: Line, cores: int | None
) -> dict[str, Any]:
    """Estimate what comes before: every client blinds every list, and hands it on in a ring.

    A training or a test table is in two lists, its own and the one of those who can be served.
    """
    roster = federation.roster
    num_rows = sum(
        sum(num_held(groups, roster).values())
        for groups in (federation.groups, federation.test_groups)
    )
    num_points, num_clients = 2 * num_rows, len(roster)
    if config.alignment != "ecdh":
        num_bytes = num_points * POINT_BYTES // num_clients
        return {
            "scheme": config.alignment,
            "seconds": num_bytes / line.bytes_per_s,
            "sent": num_bytes,
        }
    share = num_clients / cores if cores else 1 / num_cores()
    compute_s = num_points * measure_multiplication() * share
    num_bytes = num_points * POINT_BYTES
    seconds = max(compute_s, num_bytes / line.bytes_per_s) + num_clients * line.rtt_s
    return {"scheme": "ecdh", "seconds": seconds, "sent": num_bytes}
