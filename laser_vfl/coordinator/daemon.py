"""The coordinator's life: build, serve, wait for the end, drain."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from laser_vfl.coordinator.alignment import Alignment
from laser_vfl.coordinator.alignments import Note
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.directives import StartRule
from laser_vfl.coordinator.federation import Federation
from laser_vfl.coordinator.run import Run
from laser_vfl.coordinator.service import CoordinatorService
from laser_vfl.core.errors import ConfigError
from laser_vfl.v1.coordinator_pb2_grpc import add_CoordinatorServicer_to_server
from laser_vfl.wire.credentials import load_credentials, plaintext
from laser_vfl.wire.server import start_server

log = logging.getLogger(__name__)


async def run_coordinator(
    config: CoordinatorConfig, *, insecure: bool, ready: Callable[[str], None]
) -> None:
    """Serve a federation until cancelled. `ready` gets the real address once it is bound."""
    credentials = (
        load_credentials(config.tls.ca, config.tls.cert, config.tls.key)
        if config.tls
        else plaintext({"listen": config.listen}, allowed=insecure)
    )
    note, members_of = _history(config.state, config.where("state"))
    federation = Federation(
        config.clients,
        start=StartRule(config.start.quorum, config.start.after_s) if config.start else None,
        heartbeat_timeout_s=config.heartbeat_timeout_s,
        step_timeout_s=config.training.step_timeout_s,
        seed=config.training.seed,
        new_seed=lambda: secrets.randbits(63),
        new_run_id=lambda: secrets.token_hex(16),
        on_event=note,
        scheme=config.alignment,
        members_of=members_of,
        alignment_timeout_s=config.alignment_timeout_s,
    )
    service = CoordinatorService(config.federation, config.training, federation)
    server = await start_server(
        str(config.listen),
        credentials,
        lambda grpc_server: add_CoordinatorServicer_to_server(service, grpc_server),
        options=[],
    )
    ready(server.address)
    try:
        await service.keep_time()
    finally:
        await asyncio.shield(server.stop())
        log.info("stopped")


def _history(state: Path, where: str) -> tuple[Note, dict[str, tuple[str, ...]]]:
    """Return a function that logs what happens and appends it to runs.jsonl, and past members."""
    path = state / "runs.jsonl"
    try:
        state.mkdir(parents=True, exist_ok=True)
        path.touch()
        members_of = _read_members(path)
    except OSError as error:
        raise ConfigError(
            f"the directory {state} cannot be written ({error.strerror})",
            where=where,
            hint="make it writable, or change `state`",
        ) from None

    def note(event: str, subject: Run | Alignment, reason: str) -> None:
        line: dict[str, Any] = {"time": time.time(), "event": event, "members": subject.members}
        if isinstance(subject, Run):
            what = "run"
            line |= {"run": subject.id, "seed": subject.seed}
        else:
            what = f"alignment ({subject.purpose.value})"
            line |= {"alignment": subject.id, "purpose": subject.purpose.value}
        log.info("%s %s %s%s", what, subject.id, event, f": {reason}" if reason else "")
        if reason:
            line["reason"] = reason
        try:
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            log.warning("runs.jsonl was not written: %s", error.strerror)

    return note, members_of


def _read_members(path: Path) -> dict[str, tuple[str, ...]]:
    """Return who took part in the runs of the past."""
    found = {}
    for text in path.read_text(errors="replace").splitlines():
        with suppress(ValueError, KeyError, TypeError):
            line = json.loads(text)
            found[str(line["run"])] = tuple(map(str, line["members"]))
    return found
