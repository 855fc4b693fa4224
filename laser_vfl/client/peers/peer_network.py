"""Where this client meets its peers: one port that they dial, and the streams of each run."""

from collections.abc import Callable

import grpc.aio

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.peers.peer_mesh import PeerMesh, PeerStreamServicer
from laser_vfl.client.peers.peer_server import PeerServer
from laser_vfl.client.session.member_view import Peer
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.observability.audit_log import AuditLog, Refused
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport.frames import add_exchange, add_greet
from laser_vfl.transport.message_limits import exchange_options, most_together


class PeerNetwork:
    """Opens the port, and then the mesh of each run, which peers may join."""

    def __init__(
        self,
        config: ClientConfig,
        credentials: Credentials,
        add_calls: Callable[[grpc.aio.Server], None],
        refused: Refused,
        traffic: PeerTraffic,
        audit: AuditLog,
    ) -> None:
        """`add_calls` adds what peers call besides the streams of runs."""
        self._name = config.name
        self._federation = config.federation
        self._advertise = config.advertise
        self._credentials = credentials
        self._add_calls = add_calls
        self._traffic = traffic
        self._audit = audit
        self._servicer = PeerStreamServicer()
        self._server = PeerServer(str(config.listen), credentials, self._add_all_calls, refused)

    @property
    def listen_address(self) -> str:
        """Where the port is."""
        return self._server.address

    @property
    def address(self) -> str:
        """Where peers are told to dial."""
        return str(self._advertise or self._server.address)

    async def start(self, settings: TrainingSettings | None, num_clients: int) -> None:
        """Open the port, with the limits of the settings that are known by now, if any are."""
        await self._server.start(settings, num_clients)

    async def stop(self) -> None:
        """Close the port."""
        await self._server.stop()

    async def expect(self, settings: TrainingSettings, num_clients: int) -> None:
        """Take messages as large as a run of these settings needs; not for while it trains."""
        await self._server.expect(settings, num_clients)

    def open(self, record: RunRecord, incarnation: int, changed: Callable[[], None]) -> PeerMesh:
        """Open the streams of a process in a run; `changed` hears when one goes up or down."""
        settings, roster, run = record.settings, record.roster, record.run

        def accuse(peer: str, reason: str) -> None:
            """Put what a peer did into the audit log."""
            self._audit.count("offence", {"run": run, "peer": peer, "reason": reason}, count=1)

        mesh = PeerMesh(
            run,
            Peer(roster.index(self._name), self._name, incarnation, self.address),
            roster,
            self._credentials,
            exchange_options(settings, len(roster)),
            changed,
            accuse,
            pair_keys=settings.needs_pair_keys,
            traffic=self._traffic,
            pipeline=settings.pipeline,
            most_bytes=most_together(settings, len(roster)),
        )
        self._servicer.open(mesh)
        return mesh

    def close(self) -> None:
        """The run is over: a peer that dials now is early for the next one."""
        self._servicer.close()

    def _add_all_calls(self, server: grpc.aio.Server) -> None:
        add_exchange(server, self._servicer.serve)
        add_greet(server, self._federation, self._name)
        self._add_calls(server)
