"""The coordinator's life: build, serve, wait for the end, drain."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from laser_vfl.coordinator.alignment import Alignment
from laser_vfl.coordinator.auditing import note_client, note_excluded, note_subject
from laser_vfl.coordinator.changes import Departure
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.directives import StartRule
from laser_vfl.coordinator.federation import Federation
from laser_vfl.coordinator.history import open_history
from laser_vfl.coordinator.memory import Memory, fingerprint
from laser_vfl.coordinator.meters import Meters
from laser_vfl.coordinator.run import Run
from laser_vfl.coordinator.service import CoordinatorService
from laser_vfl.coordinator.store import Store
from laser_vfl.coordinator.suspicion import Rules
from laser_vfl.core.release import __version__
from laser_vfl.v1.coordinator_pb2_grpc import add_CoordinatorServicer_to_server
from laser_vfl.wire.audit import FILE_NAME, Audit, note_certificate
from laser_vfl.wire.credentials import CredentialFiles, Credentials, load_credentials, plaintext
from laser_vfl.wire.identity import coordinator_of
from laser_vfl.wire.measures import Owner, registry_of
from laser_vfl.wire.metrics_page import MetricsPage
from laser_vfl.wire.server import start_server
from laser_vfl.wire.sizes import COORDINATOR_OPTIONS

log = logging.getLogger(__name__)


async def run_coordinator(
    config: CoordinatorConfig, *, insecure: bool, ready: Callable[..., None]
) -> None:
    """Serve a federation until cancelled. `ready` gets the real addresses once they are bound."""
    credentials = credentials_of(config, insecure=insecure)
    note, members_of = open_history(config.state, config.where("state"))
    audit = Audit(config.state / FILE_NAME)
    meters = Meters(tuple(config.clients))

    def note_everywhere(event: str, subject: Run | Alignment, reason: str) -> None:
        note(event, subject, reason)
        note_subject(audit, event, subject, reason)
        meters.event(event, subject)
        if event == "started" and config.training.masked_gradients:
            _warn_of_few_heads(subject)

    def note_left_out(run: Run, departure: Departure, identity: str) -> None:
        note_excluded(audit, run, departure, identity)
        meters.excluded(departure.client)

    federation = Federation(
        config.clients,
        start=StartRule(config.start.quorum, config.start.after_s) if config.start else None,
        rules=Rules(
            config.quorum,
            config.on_lost_client,
            config.heartbeat_timeout_s,
            config.training.step_timeout_s,
            config.restart_grace_s,
        ),
        seed=config.training.seed,
        new_seed=lambda: secrets.randbits(63),
        new_run_id=lambda: secrets.token_hex(16),
        on_event=note_everywhere,
        on_client=partial(note_client, audit),
        on_excluded=note_left_out,
        scheme=config.alignment,
        members_of=members_of,
        alignment_timeout_s=config.alignment_timeout_s,
        max_people=config.max_people,
        wall_clock=time.time,
    )
    store = Store(config.state, where=config.where("state"))
    memory = Memory(store, fingerprint(config))
    memory.recall(federation)
    service = CoordinatorService(config.federation, config.training, federation, memory)
    server = await start_server(
        str(config.listen),
        credentials,
        lambda grpc_server: add_CoordinatorServicer_to_server(service, grpc_server),
        COORDINATOR_OPTIONS,
        refused=meters.refusals.counted(audit.refused),
    )
    meters.status = federation.status
    owner = Owner("coordinator", "coordinator", config.federation, credentials)
    page = MetricsPage(registry_of(owner, meters))
    try:
        await page.start(config.metrics_listen.host, config.metrics_listen.port)
    except BaseException:
        await server.stop()
        store.close()
        raise
    _leave_note(config.state, server.address, page.address)
    audit.note("started", release=__version__, listen=server.address, metrics=page.address)
    keeping = asyncio.gather(
        audit.keep(), credentials.watch(lambda material: note_certificate(audit, material))
    )
    ready(address=server.address, metrics=page.address)
    try:
        await service.keep_time()
    finally:
        await asyncio.shield(asyncio.gather(server.stop(), page.stop()))
        store.close()
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        audit.close()
        audit.note("stopped", release=__version__)
        log.info("stopped")


def _leave_note(state: Path, address: str, metrics: str) -> None:
    """Have commands on this machine find the ports, which may be any."""
    note = json.dumps({"listen": address, "metrics": metrics})
    with suppress(OSError):
        (state / "listening.json").write_text(note, "utf-8")


def credentials_of(config: CoordinatorConfig, *, insecure: bool) -> Credentials:
    """Return who a coordinator is and whom it trusts; raises what is wrong with that."""
    if config.tls:
        me = coordinator_of(config.federation)
        return load_credentials(CredentialFiles(**config.tls.model_dump()), me)
    return plaintext(config.federation, {"listen": config.listen}, allowed=insecure)


def _warn_of_few_heads(subject: Run | Alignment) -> None:
    """A sum hides its parts only if it has two of them that the receiver does not know."""
    if not isinstance(subject, Run) or subject.membership is None:
        return
    num_heads = len(subject.membership.view.heads)
    if num_heads < 3:
        log.warning(
            "masked_gradients hides nothing %s: only %d of the clients %s labels",
            "between clients with labels" if num_heads == 2 else "at all",
            num_heads,
            "have" if num_heads > 1 else "has",
        )
