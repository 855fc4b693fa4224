"""Serving, put together: the models, the peers that are asked, and what answers requests."""

import asyncio
from collections.abc import Callable, Mapping

import grpc.aio

from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.serving.answering import SamplePredictor
from laser_vfl.client.serving.limits.alignment_quota import FILE_NAME as FILE_OF_QUOTA
from laser_vfl.client.serving.limits.alignment_quota import AlignmentQuota
from laser_vfl.client.serving.limits.fair_budget import FairBudget
from laser_vfl.client.serving.limits.rate_limits import Accounts
from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.serving.models.model_store import ModelStore
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.serving.models.served_tables import ServedTables
from laser_vfl.client.serving.peer_directory import PeerDirectory
from laser_vfl.client.serving.prediction_counts import PredictionCounts
from laser_vfl.client.serving.prediction_service import PredictionService, RunStatus
from laser_vfl.client.serving.representation_service import RepresentationService
from laser_vfl.client.serving.request_rows import RowResolver
from laser_vfl.client.serving.serving_report import ServingReport
from laser_vfl.client.serving.unaligned_ids import UnalignedIds
from laser_vfl.client.session.coordinator_session import (
    ClientInfo,
    PublicationNews,
    ServingStatus,
)
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.own_tables import OwnTables
from laser_vfl.client.tables.table_listing import blinded_by
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.security.access import MAX_PREDICTIONS
from laser_vfl.transport.frames import add_represent
from laser_vfl.v1 import prediction_pb2 as pb

ANSWERING_SHARE = 0.75
"""Of the memory for requests: for those that are answered. The rest is for those that are read."""


class Serving:
    """Answers applications and peers with the model that was published last, whatever trains."""

    def __init__(
        self,
        config: ClientConfig,
        state: StateDirectory,
        own_tables: OwnTables,
        models: ModelStore,
        peers: PeerDirectory,
        may_align_ids: Callable[[], bool],
        metrics: ClientMetrics,
        audit: AuditLog,
    ) -> None:
        keys, forgotten = own_tables.keys, own_tables.forgotten
        blind = blinded_by(keys, config.federation)
        quota, per_day = None, config.serving.align_requests_per_day
        if config.serving.align_requests:
            quota = AlignmentQuota(state.path / FILE_OF_QUOTA, per_day)
        unaligned = UnalignedIds(
            blind, keys.order, may_align_ids, quota=quota, are_forgotten=forgotten.are
        )
        tables = ServedTables(config, own_tables.block, blind, forgotten)
        self._next_model = NextModel(state, config.publish)
        self._peers = peers
        self._counts = PredictionCounts(metrics)
        self.registry = ModelRegistry(
            config, models, tables, unaligned, forgotten, self._switched, self._next_model
        )
        memory = config.serving.memory_bytes
        budget = FairBudget(int(ANSWERING_SHARE * memory), "the memory for requests")
        self._reading = FairBudget(
            int((1 - ANSWERING_SHARE) * memory),
            "the memory for requests that are being read",
            max_waiting=MAX_PREDICTIONS,
        )
        resolver = RowResolver(config.name, blind, unaligned)
        self._predictor = SamplePredictor(
            config, self.registry, resolver, peers.clients, self._counts, budget
        )
        accounts = Accounts(config.serving.requests_per_s, config.serving.samples_per_s)
        self.report = ServingReport(
            self.registry, self._next_model, tables, peers.clients, accounts, self._counts
        )
        self._representations = RepresentationService(
            config.name,
            self.registry,
            accounts,
            lambda: peers.known_clients,
            audit,
            budget,
            metrics.traffic,
        )
        self._audit = audit

    async def start(self) -> None:
        """Serve what an earlier process has published, if anything."""
        await self.registry.start()

    async def follow(self) -> None:
        """Follow the tables, the people to forget and what is published, for ever."""
        await asyncio.gather(self.registry.keep_up(), self.registry.follow_publications())

    def expected_messages(self) -> tuple[TrainingSettings | None, int]:
        """Return what the size of peers' questions follows from: settings, and how many clients."""
        if (served := self.registry.current) is None:
            return None, 0
        return served.model.settings, len(served.model.roster)

    async def predict(self, request: pb.PredictRequest) -> pb.PredictResponse:
        """Answer a request from within this process."""
        return await self._predictor.predict(request)

    def add_peer_calls(self, server: grpc.aio.Server) -> None:
        """Answer the questions of peers at this server."""
        add_represent(server, self._representations.serve)

    def prediction_service(self, runs: RunStatus, me: ClientInfo) -> PredictionService:
        """Return the service for applications and operators."""
        return PredictionService(
            self._predictor, self.report, self._next_model, runs, me, self._audit, self._reading
        )

    def status(self) -> ServingStatus:
        """Return what the coordinator is told of what is served."""
        return self.registry.status()

    def learn_addresses(self, addresses: Mapping[str, str]) -> None:
        """Learn where the other clients can be reached now."""
        self._peers.learn_addresses(addresses)

    def hear_publication(self, news: PublicationNews) -> None:
        """Hear from the coordinator which runs are live."""
        self._next_model.hear(news)

    def close_to_peers(self) -> None:
        """End the streams of peers that ask, so that the port can be closed."""
        self._representations.close()

    async def close(self) -> None:
        """Answer no more, and ask nobody any more."""
        await self._predictor.close()
        self.registry.close()
        await self._peers.close()

    def _switched(self, served: ServedModel, before: ServedModel | None) -> None:
        self._peers.expect(served.model)
        if before is not None and before.model.roster != served.model.roster:
            self._counts.roster_changed()
