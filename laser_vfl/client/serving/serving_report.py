"""How serving is doing, for the status and the metrics page: its models, its peers, its counts."""

from collections.abc import Mapping
from contextlib import suppress

from laser_vfl.client.serving.limits.rate_limits import Account, Accounts
from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.models.published_model import PublishedModel
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.serving.models.served_tables import ServedTables
from laser_vfl.client.serving.peer_client import PeerClient
from laser_vfl.client.serving.prediction_counts import PredictionCounts
from laser_vfl.core.errors import LaserError
from laser_vfl.v1 import prediction_pb2 as pb


class ServingReport:
    """Reads the parts of serving, and changes none of them."""

    def __init__(
        self,
        registry: ModelRegistry,
        next_model: NextModel,
        tables: ServedTables,
        peers: Mapping[str, PeerClient],
        accounts: Accounts,
        counts: PredictionCounts,
    ) -> None:
        self.peers = peers
        """The clients that are asked, by name."""
        self._registry = registry
        self._next_model = next_model
        self._tables = tables
        self._accounts = accounts
        self._counts = counts

    @property
    def current(self) -> ServedModel | None:
        """The model that is served."""
        return self._registry.current

    @property
    def accounts(self) -> Mapping[str, Account]:
        """What each peer has asked here, by name."""
        return self._accounts.by_peer

    async def describe(self, status: pb.ClientStatus, roster: tuple[str, ...]) -> None:
        """Put all of it into a status; `roster` orders the peers of a client without a model."""
        counts = self._counts
        status.serve_problem = self._tables.problem
        status.num_requests = counts.num_requests
        status.num_predicted = counts.num_predicted
        status.num_sample_errors = counts.num_sample_errors
        for mask, count in sorted(counts.num_by_subset.items()):
            status.subsets.add(blocks=mask, num_predicted=count)
        if (current := self.current) is not None:
            status.num_held = len(current.row_index)
            _describe(status.model, current.model)
            roster = current.model.roster
        await self._describe_next(status)
        known = {*self.peers, *self.accounts}
        for name in (*(n for n in roster if n in known), *sorted(known.difference(roster))):
            self._describe_peer(status.peers.add(client=name), name)

    async def _describe_next(self, status: pb.ClientStatus) -> None:
        """Tell of the model that is trained and not served yet, if there is one."""
        found = self._next_model
        if not found.run:
            return
        status.next_model.run = found.run
        status.next_is_published = found.is_published
        status.held_by.extend(found.held_by)
        with suppress(LaserError):  # one that cannot be read is told without its scores
            if (served := await self._registry.get(found.run)) is not None:
                status.next_model.Clear()
                _describe(status.next_model, served.model)

    def _describe_peer(self, message: pb.PeerStatus, name: str) -> None:
        peer = self.peers.get(name)
        if peer is not None:
            message.address = peer.address
            message.available = not peer.breaker.is_open
            message.problem = peer.breaker.problem
            message.num_wanted = peer.num_wanted
            message.num_available = peer.num_available
            message.num_limited = peer.num_limited
            if peer.breaker.usual_s is not None:
                message.usual_s = peer.breaker.usual_s
        account = self.accounts.get(name)
        if account is not None:
            message.num_requests = account.num_requests
            message.num_ids_asked = account.num_ids_asked
            message.num_ids_served = account.num_ids_served
            message.num_refused = account.num_refused


def _describe(message: pb.ServedModel, model: PublishedModel) -> None:
    message.run = model.run
    message.trained_at = model.trained_at
    message.num_steps = model.num_steps
    message.roster.extend(model.roster)
    message.heads.extend(model.heads)
    message.task = model.labels.task if model.labels else ""
    message.score_name = model.score_name
    if model.score is not None:
        message.score = model.score
    for mask, score in model.scores.items():
        message.scores.add(blocks=mask, score=score)
