"""The client daemon: it loads, builds, serves and takes part in runs; at its end it drains."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Self

import grpc.aio
import torch
from prometheus_client import CollectorRegistry

from laser_vfl.client.alignment.aligner import Aligner
from laser_vfl.client.alignment.alignment_ledger import AlignmentLedger
from laser_vfl.client.alignment.ring import RingServicer
from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import pick_device
from laser_vfl.client.model_building import check_noise
from laser_vfl.client.own_models import NO_MODELS, OwnModels
from laser_vfl.client.peers.peer_network import PeerNetwork
from laser_vfl.client.privacy_budget import check_accountant
from laser_vfl.client.privacy_ledger import PrivacyLedger
from laser_vfl.client.run.own_alignments import OwnAlignments
from laser_vfl.client.run.resumable_run import ResumableRun
from laser_vfl.client.run.run_checks import RunChecks
from laser_vfl.client.run.run_training import RunTraining
from laser_vfl.client.run.supervisor import RunSupervisor
from laser_vfl.client.run.trainers import Trainers
from laser_vfl.client.serving.assembly import Serving
from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.serving.models.model_store import ModelStore
from laser_vfl.client.serving.peer_directory import PeerDirectory
from laser_vfl.client.serving.prediction_service import PredictionService
from laser_vfl.client.session.coordinator_session import ClientInfo, RunStopped, Session
from laser_vfl.client.session.failure_notices import STOPPED, failure_notice
from laser_vfl.client.session.peer_address import DialRule
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.status_gauges import StatusGauges
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import check_before_start
from laser_vfl.client.tables.own_tables import OwnTables, open_tables
from laser_vfl.client.waiting_times import WaitingTimes
from laser_vfl.client.work_progress import WorkProgress
from laser_vfl.config.test_policy import for_tests
from laser_vfl.core.release import __version__
from laser_vfl.models.bfloat16 import avoid_broken_instructions
from laser_vfl.observability.audit_log import FILE_NAME, AuditLog, Refused, note_certificate
from laser_vfl.observability.background_writer import BackgroundWriter
from laser_vfl.observability.certificate_end import CertificateEnd
from laser_vfl.observability.metric_definitions import Owner, registry_of
from laser_vfl.observability.metrics_page import MetricsPage
from laser_vfl.security.access import Authorizer
from laser_vfl.security.application_tokens import Tokens
from laser_vfl.security.credentials import (
    CredentialFiles,
    Credentials,
    load_credentials,
    plaintext,
)
from laser_vfl.security.identity import client_of, coordinator_of
from laser_vfl.transport.frames import add_hand_on
from laser_vfl.transport.grpc_status import RefusalPacer
from laser_vfl.transport.message_limits import COORDINATOR_OPTIONS, REQUEST_OPTIONS
from laser_vfl.transport.prediction_calls import SERVICE, add_predictions
from laser_vfl.transport.protocol import PROTOCOL_VERSION, RECONNECT
from laser_vfl.transport.reloading_channel import ReloadingChannel
from laser_vfl.transport.server import Server, start_server
from laser_vfl.v1 import prediction_pb2 as pb


async def run_client(
    config: ClientConfig,
    *,
    insecure: bool,
    exit_after_training: bool,
    ready: Callable[..., None],
) -> None:
    """Run one organisation's daemon until it is cancelled, fails, or has trained and may leave."""
    async with ClientDaemon(config, insecure=insecure) as daemon:
        ready(
            address=daemon.address,
            predict=daemon.predict_address,
            metrics=daemon.metrics_address,
        )
        gc.collect()
        gc.freeze()  # what there is now stays; the collector need not scan it
        await daemon.run(train_now=exit_after_training, once=exit_after_training)


class ClientDaemon:
    """A client with its servers, from its start to its farewell. Runs on one event loop."""

    address: str
    predict_address: str
    metrics_address: str
    audit: AuditLog

    def __init__(self, config: ClientConfig, *, insecure: bool, own: OwnModels = NO_MODELS) -> None:
        self._config = config
        self._insecure = insecure
        self._own = own
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        farewell = problem = ""
        if isinstance(error, asyncio.CancelledError):
            farewell = STOPPED
        elif error is not None:
            farewell = failure_notice(error)
            problem = "" if isinstance(error, RunStopped) else farewell
        await asyncio.shield(self._stop(farewell, problem))

    async def run(self, *, train_now: bool = False, once: bool = False) -> None:
        """Take part in runs until cancelled, or in one only."""
        await self._supervisor.run(train_now=train_now, once=once)

    async def fit(self) -> None:
        """Want a run, and wait until its model is published."""
        await self._supervisor.fit()

    async def predict(self, request: pb.PredictRequest) -> pb.PredictResponse:
        """Answer a request from within this process."""
        return await self._serving.predict(request)

    async def _start(self, stack: AsyncExitStack) -> None:
        config = self._config
        credentials = credentials_of(config, insecure=self._insecure)
        device = await _check_machine(config)
        state = await _held_state(config, stack)
        audit = self.audit = _open_audit_log(config, stack)
        metrics, times = ClientMetrics(), for_tests(WaitingTimes())
        refused = metrics.refusals.counted(audit.refused)

        work = WorkProgress(config.name)
        tables = await asyncio.to_thread(self._open_tables, state, work)
        spent = await asyncio.to_thread(PrivacyLedger, config)
        ledger = AlignmentLedger(state.path / "alignments.json", config.alignments_per_day)

        models, dialled = ModelStore(config, state, self._own, device), dial_rule(config)
        peers = PeerDirectory(config.name, state, credentials, metrics.traffic, dialled.allows)
        serving = self._serving = Serving(
            config, state, tables, models, peers, ledger.may_align_ids, metrics, audit
        )
        stack.push_async_callback(serving.close)
        await serving.start()

        ring = RingServicer()
        network = PeerNetwork(
            config, credentials, _peer_calls(serving, ring), refused, metrics.traffic, audit
        )
        await self._listen_for_peers(network, serving, stack)

        me = ClientInfo(config.federation, config.name, self.address, tables.has_labels)
        progress = Progress(metrics, work)
        channel = _coordinator_channel(config, credentials, stack)
        session = self._session = Session(channel, me, progress, serving, dialled, times)
        aligner = Aligner(
            config, session, credentials, ring, ledger, audit, metrics.traffic, times, work
        )
        stack.callback(aligner.close)

        trainers = Trainers(config, self._own, device, state, progress, metrics, spent)
        self._supervisor = RunSupervisor(
            config,
            session=session,
            tables=tables,
            alignments=OwnAlignments(aligner, ledger, tables, serving.registry, state),
            checks=RunChecks(config, spent),
            training=RunTraining(config, trainers, session, network, progress, audit, times),
            resumable=ResumableRun(state),
            serving=serving.registry,
            times=times,
        )

        predictions = serving.prediction_service(self._supervisor, me)
        predict_server = await self._serve_predictions(predictions, credentials, refused, stack)
        gauges = StatusGauges(self._supervisor, serving.report, session)
        await self._serve_metrics(registry_of(_owner(config, credentials), metrics, gauges), stack)
        others = {"predict": self.predict_address, "metrics": self.metrics_address}
        state.write_listening(listen=network.listen_address, **others)
        _keep_running(
            stack,
            serving.follow(),
            _announce(predict_server, serving.registry),
            audit.keep(),
            credentials.watch(lambda material: note_certificate(audit, material)),
            CertificateEnd(audit).watch(credentials),
        )
        audit.note("started", release=__version__, listen=self.address, **others)

    def _open_tables(self, state: StateDirectory, work: WorkProgress) -> OwnTables:
        """Read the tables, and refuse a model that would make the noise on them worthless."""
        tables = open_tables(self._config, state, work)
        check_noise(self._config, tables.block, self._own)
        return tables

    async def _listen_for_peers(
        self, network: PeerNetwork, serving: Serving, stack: AsyncExitStack
    ) -> None:
        """Open the port for peers, with the limits of the model that is served, if there is one."""
        stack.push_async_callback(network.stop)
        stack.callback(serving.close_to_peers)
        await network.start(*serving.expected_messages())
        self.address = network.address

    async def _serve_predictions(
        self,
        predictions: PredictionService,
        credentials: Credentials,
        refused: Refused,
        stack: AsyncExitStack,
    ) -> Server:
        """Open the port for applications and operators."""
        config = self._config.serving
        tokens = Tokens(config.tokens_file).application if config.tokens_file else None
        server = await start_server(
            str(self._config.predict_listen),
            credentials,
            lambda grpc_server: add_predictions(
                grpc_server,
                predict=predictions.predict,
                status=predictions.status,
                align=predictions.align,
                publish=predictions.publish,
            ),
            REQUEST_OPTIONS,
            key="predict_listen",
            authorizer=Authorizer(credentials, applications=config.applications, tokens=tokens),
            refused=refused,
            refusals=RefusalPacer(),
        )
        stack.push_async_callback(server.stop)
        self.predict_address = server.address
        return server

    async def _serve_metrics(self, registry: CollectorRegistry, stack: AsyncExitStack) -> None:
        """Open the page for Prometheus."""
        page = MetricsPage(registry)
        await page.start(self._config.metrics_listen.host, self._config.metrics_listen.port)
        stack.push_async_callback(page.stop)
        self.metrics_address = page.address

    async def _stop(self, farewell: str, problem: str) -> None:
        await self._session.close(farewell, problem)
        await self._stack.aclose()


async def _check_machine(config: ClientConfig) -> torch.device:
    """Return the device to compute on; raise what would fail in the middle of a run."""
    check_accountant(config)
    device = pick_device(config.device, where=config.where("device"))
    await asyncio.to_thread(check_before_start, config)
    if device.type == "cpu" and config.precision == "bfloat16":
        await asyncio.to_thread(avoid_broken_instructions)
    return device


async def _held_state(config: ClientConfig, stack: AsyncExitStack) -> StateDirectory:
    """Return the state directory, locked against other processes until the daemon ends."""
    state = StateDirectory(config.state, where=config.where("state"))
    await asyncio.to_thread(stack.enter_context, state.held())
    return state


def _open_audit_log(config: ClientConfig, stack: AsyncExitStack) -> AuditLog:
    writer = BackgroundWriter()
    stack.callback(writer.close)
    audit = AuditLog(config.state / FILE_NAME, run=writer.run)
    stack.callback(audit.note, "stopped", release=__version__)
    stack.callback(audit.close)
    return audit


def _peer_calls(serving: Serving, ring: RingServicer) -> Callable[[grpc.aio.Server], None]:
    """Return what adds the calls of peers that have nothing to do with the steps of a run."""

    def add(server: grpc.aio.Server) -> None:
        serving.add_peer_calls(server)
        add_hand_on(server, ring.serve)

    return add


def _coordinator_channel(
    config: ClientConfig, credentials: Credentials, stack: AsyncExitStack
) -> ReloadingChannel:
    to = coordinator_of(config.federation)
    options = [*COORDINATOR_OPTIONS, *RECONNECT]
    channel = ReloadingChannel(str(config.coordinator), credentials, to, options)
    stack.push_async_callback(channel.close)
    return channel


def _owner(config: ClientConfig, credentials: Credentials) -> Owner:
    return Owner("client", config.name, config.federation, credentials, PROTOCOL_VERSION)


def _keep_running(stack: AsyncExitStack, *work: Coroutine[Any, Any, None]) -> None:
    """Start what runs beside everything else until the daemon ends."""
    for coroutine in work:
        stack.callback(asyncio.create_task(coroutine).cancel)


async def _announce(server: Server, serving: ModelRegistry) -> None:
    """Let the health service of the prediction port say whether there is a model yet."""
    await server.set_healthy(False, SERVICE)
    await serving.has_model.wait()
    await server.set_healthy(True, SERVICE)


def dial_rule(config: ClientConfig) -> DialRule:
    """Return which addresses of others a client dials."""
    own = config.advertise or config.listen
    return DialRule(own, dial_local=config.dial_local, listen=config.listen)


def credentials_of(config: ClientConfig, *, insecure: bool) -> Credentials:
    """Return who a client is and whom it trusts; raises what is wrong with that."""
    if config.tls:
        me = client_of(config.federation, config.name)
        return load_credentials(CredentialFiles(**config.tls.model_dump()), me)
    return plaintext(
        config.federation,
        {
            "listen": config.listen,
            "advertise": config.advertise,
            "coordinator": config.coordinator,
            "predict_listen": config.predict_listen,
        },
        allowed=insecure,
    )
