"""The client's life: load, build, serve, take part in runs; then drain and leave."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Self

import grpc.aio

from laser_vfl.client.aligning import Aligner
from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import NO_MODELS, OwnModels, check_noise, load_block
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import pick_device
from laser_vfl.client.forgotten import Forgotten
from laser_vfl.client.gauges import Gauges
from laser_vfl.client.ledger import Ledger
from laser_vfl.client.links import Reception
from laser_vfl.client.meters import Meters
from laser_vfl.client.participation import Means, Participation
from laser_vfl.client.peer_server import PeerServer
from laser_vfl.client.prediction_service import PredictionService
from laser_vfl.client.privacy_budget import check_accountant
from laser_vfl.client.representing import Representing
from laser_vfl.client.ring import RingReception
from laser_vfl.client.serving import Serving
from laser_vfl.client.session import Introduction, Session
from laser_vfl.client.tokens import Tokens
from laser_vfl.core.errors import LaserError
from laser_vfl.core.release import __version__
from laser_vfl.models.bfloat16 import avoid_broken_instructions
from laser_vfl.v1.prediction_pb2_grpc import add_PredictionServicer_to_server
from laser_vfl.wire.access import Gate
from laser_vfl.wire.audit import FILE_NAME, Audit, note_certificate
from laser_vfl.wire.credentials import (
    CredentialFiles,
    Credentials,
    load_credentials,
    plaintext,
)
from laser_vfl.wire.frames import add_exchange, add_greet, add_hand_on, add_represent
from laser_vfl.wire.identity import client_of, coordinator_of
from laser_vfl.wire.lines import Line
from laser_vfl.wire.measures import Owner, registry_of
from laser_vfl.wire.metrics_page import MetricsPage
from laser_vfl.wire.protocol import RECONNECT
from laser_vfl.wire.server import Server, start_server
from laser_vfl.wire.sizes import COORDINATOR_OPTIONS, REQUEST_OPTIONS

PREDICTION = "laser_vfl.v1.Prediction"


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
        gc.freeze()  # what is there now stays: no use in looking through it again and again
        await daemon.participation.run(train_now=exit_after_training, once=exit_after_training)


class ClientDaemon:
    """A client with its servers, from its start to its farewell. Runs on one event loop."""

    address: str
    predict_address: str
    metrics_address: str
    participation: Participation
    serving: Serving
    audit: Audit

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
        farewell = ""
        if isinstance(error, asyncio.CancelledError):
            farewell = "it was stopped"
        elif error is not None:
            farewell = error.message if isinstance(error, LaserError) else "it failed"
        await asyncio.shield(self._stop(farewell))

    async def _start(self, stack: AsyncExitStack) -> None:
        config, own = self._config, self._own
        credentials = credentials_of(config, insecure=self._insecure)
        check_accountant(config)
        device = pick_device(config.device, where=config.where("device"))
        if device.type == "cpu" and config.precision == "bfloat16":
            await asyncio.to_thread(avoid_broken_instructions)
        state = StateDirectory(config.state, where=config.where("state"))
        await asyncio.to_thread(stack.enter_context, state.held())
        audit = self.audit = Audit(config.state / FILE_NAME)
        stack.callback(audit.note, "stopped", release=__version__)
        stack.callback(audit.close)
        meters = Meters()
        refused = meters.refusals.counted(audit.refused)
        keys = state.keys(config.id_secret_file)
        forgotten = Forgotten(config.state, keys, config.federation)
        block = await asyncio.to_thread(load_block, config, keys.digest, forgotten)
        await asyncio.to_thread(check_noise, config, block, own)
        ledger = Ledger(state.path / "alignments.json", config.alignments_per_day)
        serving = self.serving = Serving(
            config, state, block, own, credentials, device, keys, ledger, forgotten, meters
        )
        stack.push_async_callback(serving.close)
        await serving.start()
        reception, ring_reception = Reception(), RingReception()
        representing = Representing(serving, audit, meters.traffic)

        def add_peer_calls(grpc_server: grpc.aio.Server) -> None:
            add_exchange(grpc_server, reception.serve)
            add_represent(grpc_server, representing.serve)
            add_hand_on(grpc_server, ring_reception.serve)
            add_greet(grpc_server, config.federation, config.name)

        server = PeerServer(str(config.listen), credentials, add_peer_calls, refused)
        stack.push_async_callback(server.stop)
        model = serving.current.model if serving.current else None
        await server.start(model.settings if model else None, len(model.roster) if model else 0)
        stack.callback(representing.close)
        self.address = str(config.advertise or server.address)
        to = coordinator_of(config.federation)
        options = [*COORDINATOR_OPTIONS, *RECONNECT]
        line = Line(str(config.coordinator), credentials, to, options)
        stack.push_async_callback(line.close)
        introduction = Introduction(
            federation=config.federation,
            client=config.name,
            address=self.address,
            has_head=block.labels is not None,
        )
        session = self._session = Session(
            line, introduction, serving.meet, serving.standing, meters
        )
        aligner = Aligner(
            config, session, credentials, ring_reception, ledger, audit, meters.traffic
        )
        stack.callback(aligner.close)
        means = Means(
            config,
            own,
            device,
            credentials,
            state,
            session,
            serving,
            server,
            reception,
            aligner,
            keys,
            forgotten,
            audit,
            self.address,
        )
        self.participation = Participation(means, block)
        predictions = PredictionService(serving, self.participation, introduction, audit)
        applications, tokens_file = config.serving.applications, config.serving.tokens_file
        tokens = Tokens(tokens_file) if tokens_file else None
        predict_server = await start_server(
            str(config.predict_listen),
            credentials,
            lambda grpc_server: add_PredictionServicer_to_server(predictions, grpc_server),
            REQUEST_OPTIONS,
            key="predict_listen",
            gate=Gate(credentials, applications=applications, tokens=tokens),
            refused=refused,
        )
        stack.push_async_callback(predict_server.stop)
        self.predict_address = predict_server.address
        owner = Owner("client", config.name, config.federation, credentials)
        gauges = Gauges(self.participation, serving, session)
        page = MetricsPage(registry_of(owner, meters, gauges))
        await page.start(config.metrics_listen.host, config.metrics_listen.port)
        stack.push_async_callback(page.stop)
        self.metrics_address = page.address
        state.write_listening(
            listen=server.address, predict=predict_server.address, metrics=page.address
        )
        for work in (
            serving.keep_house(),
            _announce(predict_server, serving),
            audit.keep(),
            credentials.watch(lambda material: note_certificate(audit, material)),
        ):
            stack.callback(asyncio.create_task(work).cancel)
        audit.note(
            "started",
            release=__version__,
            listen=self.address,
            predict=self.predict_address,
            metrics=self.metrics_address,
        )

    async def _stop(self, farewell: str) -> None:
        await self._session.close(farewell)
        await self._stack.aclose()


async def _announce(server: Server, serving: Serving) -> None:
    """Let the health service of the prediction port say whether there is a model yet."""
    await server.set_healthy(False, PREDICTION)
    await serving.has_model.wait()
    await server.set_healthy(True, PREDICTION)


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
