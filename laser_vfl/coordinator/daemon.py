"""The coordinator's life: build, serve, wait for the end, drain."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from laser_vfl.atomic_files import replace_file
from laser_vfl.config.test_policy import for_tests
from laser_vfl.coordinator.api.audit_events import AuditEvents
from laser_vfl.coordinator.api.coordinator_metrics import CoordinatorMetrics
from laser_vfl.coordinator.api.coordinator_service import CoordinatorService
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.rules.alignment.alignment import Alignment
from laser_vfl.coordinator.rules.alignment.alignment_queue import Alignments
from laser_vfl.coordinator.rules.federation import Federation
from laser_vfl.coordinator.rules.federation_observer import FederationObserver, Observers
from laser_vfl.coordinator.rules.policies import AlignmentPolicy, MembershipPolicy
from laser_vfl.coordinator.rules.publications import Publications
from laser_vfl.coordinator.rules.registry import Registry
from laser_vfl.coordinator.rules.run import Run
from laser_vfl.coordinator.rules.run_schedule import RunSchedule
from laser_vfl.coordinator.rules.run_start import RunStart, StartRule
from laser_vfl.coordinator.storage.database import Store
from laser_vfl.coordinator.storage.run_history import RunHistory
from laser_vfl.coordinator.storage.state_persister import StatePersister, fingerprint
from laser_vfl.core.release import __version__
from laser_vfl.observability.audit_log import FILE_NAME, AuditLog, note_certificate
from laser_vfl.observability.background_writer import BackgroundWriter
from laser_vfl.observability.certificate_end import CertificateEnd
from laser_vfl.observability.metric_definitions import Owner, registry_of
from laser_vfl.observability.metrics_page import MetricsPage
from laser_vfl.private_files import FILE_MODE, keep_private
from laser_vfl.security.credentials import CredentialFiles, Credentials, load_credentials, plaintext
from laser_vfl.security.identity import coordinator_of
from laser_vfl.transport.grpc_status import RefusalPacer
from laser_vfl.transport.message_limits import COORDINATOR_OPTIONS
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.transport.server import start_server
from laser_vfl.v1.coordinator_pb2_grpc import add_CoordinatorServicer_to_server

log = logging.getLogger(__name__)


async def run_coordinator(
    config: CoordinatorConfig, *, insecure: bool, ready: Callable[..., None]
) -> None:
    """Serve a federation until cancelled. `ready` gets the real addresses once they are bound."""
    credentials = credentials_of(config, insecure=insecure)
    writer = BackgroundWriter()
    audit = AuditLog(config.state / FILE_NAME, run=writer.run)
    metrics = CoordinatorMetrics(tuple(config.clients))
    federation = _build_federation(config, audit, metrics, writer)
    store = Store(config.state, where=config.where("state"))
    await asyncio.to_thread(keep_private, config.state)
    persister = StatePersister(store, fingerprint(config))
    persister.recall(federation)
    service = CoordinatorService(
        config.federation, config.training, federation, persister, config.run_terms()
    )
    server = await start_server(
        str(config.listen),
        credentials,
        lambda grpc_server: add_CoordinatorServicer_to_server(service, grpc_server),
        COORDINATOR_OPTIONS,
        refused=metrics.refusals.counted(audit.refused),
        refusals=RefusalPacer(),
    )
    metrics.status = federation.status
    owner = Owner("coordinator", "coordinator", config.federation, credentials, PROTOCOL_VERSION)
    page = MetricsPage(registry_of(owner, metrics))
    try:
        await page.start(config.metrics_listen.host, config.metrics_listen.port)
    except BaseException:
        await server.stop()
        store.close()
        raise
    _leave_note(config.state, server.address, page.address)
    audit.note("started", release=__version__, listen=server.address, metrics=page.address)
    keeping = asyncio.gather(
        audit.keep(),
        credentials.watch(lambda material: note_certificate(audit, material)),
        CertificateEnd(audit).watch(credentials),
    )
    ready(address=server.address, metrics=page.address)
    try:
        await service.keep_time()
    finally:
        await asyncio.shield(asyncio.gather(server.stop(), page.stop()))
        await asyncio.shield(service.settle())
        await asyncio.shield(persister.close())
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        audit.close()
        audit.note("stopped", release=__version__)
        writer.close()
        log.info("stopped")


def _build_federation(
    config: CoordinatorConfig,
    audit: AuditLog,
    metrics: CoordinatorMetrics,
    writer: BackgroundWriter,
) -> Federation:
    """Build the rules from their parts, with everything that is told what happens."""
    history = RunHistory(config.state, config.where("state"), writer.run)
    observers: list[FederationObserver] = [history, AuditEvents(audit), metrics]
    if config.training.masked_gradients:
        observers.append(FewHeadsWarning())
    observer = Observers(*observers)
    membership_policy = for_tests(
        MembershipPolicy(
            config.quorum,
            config.on_lost_client,
            config.heartbeat_timeout_s,
            config.training.step_timeout_s,
            config.training.pipeline,
            config.restart_grace_s,
            config.max_slowdown,
        )
    )
    alignment_policy = for_tests(
        AlignmentPolicy(config.alignment_timeout_s, config.max_people, config.max_total_people)
    )
    start = StartRule(config.start.quorum, config.start.after_s) if config.start else None
    return Federation(
        Registry(config.clients, membership_policy),
        RunStart(
            config.clients,
            start,
            alignment_policy,
            config.training.seed,
            new_seed=lambda: secrets.randbits(63),
            has_trained=history.last_finished_at is not None,
        ),
        Alignments(
            config.clients,
            config.alignment,
            alignment_policy,
            lambda: secrets.token_hex(16),
            observer,
            history.members_of,
        ),
        membership_policy,
        observer,
        wall_clock=time.time,
        schedule=RunSchedule(config.retrain_every_s, history.last_finished_at),
        publications=Publications(config.clients, history.finished),
    )


def _leave_note(state: Path, address: str, metrics: str) -> None:
    """Have commands on this machine find the ports, which may be any."""
    note = json.dumps({"listen": address, "metrics": metrics})
    with suppress(OSError):
        replace_file(state / "listening.json", note.encode(), mode=FILE_MODE)


def credentials_of(config: CoordinatorConfig, *, insecure: bool) -> Credentials:
    """Return who a coordinator is and whom it trusts; raises what is wrong with that."""
    if config.tls:
        me = coordinator_of(config.federation)
        return load_credentials(CredentialFiles(**config.tls.model_dump()), me)
    return plaintext(config.federation, {"listen": config.listen}, allowed=insecure)


class FewHeadsWarning(FederationObserver):
    """Warns at the start of a run whose masks hide little or nothing.

    A sum hides its parts only if it has two of them that the receiver does not know.
    """

    def happened(self, event: str, subject: Run | Alignment, reason: str) -> None:
        """Count the clients with labels in a run that has started."""
        if event != "started" or not isinstance(subject, Run):
            return
        num_heads = subject.num_heads
        if num_heads is not None and num_heads < 3:
            log.warning(
                "masked_gradients hides nothing %s: only %d of the clients %s labels",
                "between clients with labels" if num_heads == 2 else "at all",
                num_heads,
                "have" if num_heads > 1 else "has",
            )
