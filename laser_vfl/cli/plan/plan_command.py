"""`plan`: what a run will send and how long it will take, before anybody starts one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from laser_vfl.cli.daemon_config import load_client_config, load_coordinator_config
from laser_vfl.cli.option_parsers import parse_bandwidth, parse_latency, parse_names, parse_shares
from laser_vfl.cli.own_daemon import own_coordinator
from laser_vfl.cli.plan.plan_text import print_plan
from laser_vfl.client.config import ClientConfig
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.alignment import Group
from laser_vfl.core.errors import AddressError, ConfigError, DataError
from laser_vfl.planning.clocks import NetworkLine
from laser_vfl.planning.expected_groups import (
    drawn_groups,
    groups_of_overlaps,
    last_run_samples,
)
from laser_vfl.planning.forecast import Compute, PlannedFederation
from laser_vfl.planning.measured_compute import measure_compute
from laser_vfl.planning.plan import plan_run
from laser_vfl.remote.operations import coordinator_status

ASSUMED_SAMPLES = 10_000


@dataclass(frozen=True)
class PlanOptions:
    """The options of the command, as they were given."""

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
    line = NetworkLine(
        parse_bandwidth(options.bandwidth, "--bandwidth"), parse_latency(options.rtt, "--rtt")
    )
    config = load_coordinator_config(options.config)
    client = load_client_config(options.client_config) if options.client_config else None
    federation, source = _federation(options, config, client)
    if options.compute is not None:
        compute = Compute(parse_latency(options.compute, "--compute"))
    else:
        compute = measure_compute(federation, client, options.features, options.cores)
    return plan_run(config, federation, line, compute, source=source, cores=options.cores)


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
) -> tuple[PlannedFederation, str]:
    roster = tuple(config.clients)
    labels = roster
    tests: tuple[Group, ...] = ()
    if options.overlaps is not None:
        groups = groups_of_overlaps(options.overlaps, roster, "train")
        tests = groups_of_overlaps(options.overlaps, roster, "test")
        source = f"the overlaps in {options.overlaps.name}"
    elif options.running:
        num_samples, missing, labels = last_run_samples(_status(options.config), roster)
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
    return PlannedFederation(config.training, roster, labels, groups, tests, is_secure), source


def _status(path: Path) -> dict[str, Any]:
    """Ask the coordinator of a configuration how it is doing."""
    daemon = own_coordinator(path)
    try:
        return coordinator_status(daemon.address, daemon.access)
    except AddressError:
        raise daemon.not_up() from None
