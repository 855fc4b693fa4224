"""`doctor`: check all that a daemon needs, one line each, and change nothing."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from laser_vfl.cli.daemon_config import load_daemon_config
from laser_vfl.cli.doctor.daemon_checks import (
    AskingAs,
    check_coordinator,
    check_daemon,
    check_name,
    check_peers,
    check_port,
    dialled,
    is_own_daemon,
)
from laser_vfl.cli.doctor.finding import Finding, failed, ok, warn
from laser_vfl.cli.doctor.local_checks import (
    check_device,
    check_models,
    check_privacy,
    check_release,
    check_required,
    check_secrets,
    check_state,
    check_tables,
)
from laser_vfl.cli.doctor.own_certificate import check_certificate
from laser_vfl.client.config import ClientConfig
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ExitCode, LaserError
from laser_vfl.remote.calls import access_to
from laser_vfl.remote.operations import coordinator_status
from laser_vfl.security.credentials import CredentialFiles
from laser_vfl.security.identity import client_of, coordinator_of


def run_doctor(path: Path, *, insecure: bool, as_json: bool) -> ExitCode:
    """Print each finding as soon as it is made; return the code of the first failure."""
    found = []
    for finding in examine(path, insecure=insecure):
        found.append(finding)
        if not as_json:
            print(finding, flush=True)
    failures = [finding.exit_code for finding in found if finding.status == "FAIL"]
    if as_json:
        result = {"ok": not failures, "findings": [finding.to_json() for finding in found]}
        print(json.dumps(result, ensure_ascii=False))
    return failures[0] if failures else ExitCode.OK


def examine(path: Path, *, insecure: bool) -> Iterator[Finding]:
    """Check everything about the daemon of a configuration file, whether it is up or not."""
    yield check_release()
    try:
        config = load_daemon_config(path)
    except LaserError as error:
        yield failed("config", error)
        return
    if isinstance(config, CoordinatorConfig):
        yield ok("config", f"{path}: the coordinator of federation {config.federation}")
        yield from _examine_coordinator(config, insecure=insecure)
    else:
        yield ok("config", f"{path}: client {config.name} of federation {config.federation}")
        yield from _examine_client(config, insecure=insecure)


def _examine_client(config: ClientConfig, *, insecure: bool) -> Iterator[Finding]:
    from laser_vfl.client.daemon import credentials_of, dial_rule
    from laser_vfl.client.storage.state_directory import read_addresses

    me = client_of(config.federation, config.name)
    files = CredentialFiles(**config.tls.model_dump()) if config.tls else None
    tables = yield from check_tables(config)
    yield check_models(config, tables)
    yield check_required(config)
    yield from check_privacy(config)
    yield from check_secrets(config)
    yield from check_state(config.state, config.where("state"))
    yield from check_device(config)
    if files:
        yield from check_certificate(files, me, datetime.now(UTC))
    if config.advertise:
        yield check_name("advertise", config.advertise)
    yield (known := check_name("coordinator", config.coordinator))
    try:
        caller = AskingAs(me, credentials_of(config, insecure=insecure), files)
    except LaserError as error:
        yield from _without_credentials(error)
        return
    yield check_port("listen", config.listen, caller)
    yield check_port("predict_listen", config.predict_listen, caller)
    yield check_port("metrics_listen", config.metrics_listen, caller)
    greeting, is_dialled = None, dial_rule(config).allows
    if known.status == "ok":
        greeting = yield from check_coordinator(config.coordinator, caller)
    if greeting is not None:
        yield from check_peers(greeting.addresses, caller, is_dialled, remembered=False)
    else:
        yield from check_peers(read_addresses(config.state), caller, is_dialled, remembered=True)


def _examine_coordinator(config: CoordinatorConfig, *, insecure: bool) -> Iterator[Finding]:
    from laser_vfl.coordinator.daemon import credentials_of

    me = coordinator_of(config.federation)
    files = CredentialFiles(**config.tls.model_dump()) if config.tls else None
    yield from check_state(config.state, config.where("state"))
    if files:
        yield from check_certificate(files, me, datetime.now(UTC))
    yield check_name("listen", config.listen)
    try:
        caller = AskingAs(me, credentials_of(config, insecure=insecure), files)
    except LaserError as error:
        yield from _without_credentials(error)
        return
    yield check_port("listen", config.listen, caller)
    yield check_port("metrics_listen", config.metrics_listen, caller)
    if not is_own_daemon("listen", config.listen, caller):
        return
    address = dialled(config.listen)
    if (yield from check_daemon(address, me, caller)) is not None:
        yield _check_connected(str(address), caller)


def _check_connected(address: str, caller: AskingAs) -> Finding:
    """Report which clients the coordinator says are connected."""
    try:
        status = coordinator_status(address, access_to(caller.credentials, caller.me))
    except LaserError as error:
        return failed("clients", error)
    absent = [client["client"] for client in status["clients"] if not client["up"]]
    there = f"{len(status['clients']) - len(absent)} of {len(status['clients'])} are connected"
    if absent:
        return warn("clients", f"{there}, not {', '.join(absent)}", "run `laser-vfl doctor` there")
    return ok("clients", there)


def _without_credentials(error: LaserError) -> Iterator[Finding]:
    yield failed("tls", error)
    yield warn("network", "nobody was asked, for want of credentials", "repair what failed above")
