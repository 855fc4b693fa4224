"""The coordinator's life: build, serve, wait for the end, drain."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.directives import StartRule
from laser_vfl.coordinator.federation import Federation
from laser_vfl.coordinator.records import Run
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
    history = _history(config.state, config.where("state"))
    federation = Federation(
        config.clients,
        start=StartRule(config.start.quorum, config.start.after_s) if config.start else None,
        heartbeat_timeout_s=config.heartbeat_timeout_s,
        step_timeout_s=config.training.step_timeout_s,
        seed=config.training.seed,
        new_seed=lambda: secrets.randbits(63),
        new_run_id=lambda: secrets.token_hex(16),
        on_event=history,
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


def _history(state: Path, where: str) -> Callable[[str, Run, str], None]:
    """Return a function that logs what happens to runs and appends it to runs.jsonl."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        (state / "runs.jsonl").touch()
    except OSError as error:
        raise ConfigError(
            f"the directory {state} cannot be written ({error.strerror})",
            where=where,
            hint="make it writable, or change `state`",
        ) from None

    def note(event: str, run: Run, reason: str) -> None:
        log.info("run %s %s%s", run.id, event, f": {reason}" if reason else "")
        line = {
            "time": time.time(),
            "run": run.id,
            "event": event,
            "members": run.members,
            "seed": run.seed,
        }
        try:
            with (state / "runs.jsonl").open("a") as file:
                file.write(json.dumps({**line, "reason": reason} if reason else line) + "\n")
        except OSError as error:
            log.warning("runs.jsonl was not written: %s", error.strerror)

    return note
