"""The peers that predictions ask: where each was last seen, and the client that asks it."""

import asyncio
import logging
from collections.abc import Mapping

from laser_vfl.client.serving.models.published_model import PublishedModel
from laser_vfl.client.serving.peer_client import PeerClient
from laser_vfl.client.session.peer_address import NOWHERE, IsDialled, checked_address
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.core.errors import ContractError, LaserError
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport.message_limits import asking_options

log = logging.getLogger(__name__)

MAX_KNOWN = 64
"""How many other clients a federation may have."""


class PeerDirectory:
    """Addresses outlive the process, so that a client serves without the coordinator."""

    def __init__(
        self,
        own_name: str,
        state: StateDirectory,
        credentials: Credentials,
        traffic: PeerTraffic,
        is_dialled: IsDialled = lambda client, address: True,
    ) -> None:
        self.clients: dict[str, PeerClient] = {}
        """Those that a served model needs, by name."""
        self._own_name = own_name
        self._state = state
        self._credentials = credentials
        self._traffic = traffic
        self._is_dialled = is_dialled
        known = state.read_addresses()
        self._addresses = {k: v for k, v in known.items() if is_dialled(k, v)}
        self._writing: asyncio.Task[None] | None = None

    @property
    def known_clients(self) -> frozenset[str]:
        """The clients that this one has met so far."""
        return frozenset(self._addresses)

    def learn_addresses(self, addresses: Mapping[str, str]) -> None:
        """Learn where the other clients can be reached now."""
        news = {k: v for k, v in addresses.items() if k != self._own_name and _is_host(k, v)}
        if len(self._addresses.keys() | news.keys()) > MAX_KNOWN:
            log.warning("the coordinator names more clients than a federation can have")
            return
        if news.items() <= self._addresses.items():
            return
        self._addresses = self._addresses | news
        for name, client in self.clients.items():
            client.move(self._addresses.get(name, client.address))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())

    def expect(self, model: PublishedModel) -> None:
        """Ask the peers of a model from now on, and expect answers of its size."""
        options = asking_options(model.settings, len(model.roster))
        for client in self.clients.values():
            client.expect(options)
        for name, address in model.addresses.items():
            if name != self._own_name and name not in self.clients:
                where = self._addresses.get(name, address)
                client = PeerClient(
                    name,
                    where if self._is_dialled(name, where) else NOWHERE,
                    sender=self._own_name,
                    credentials=self._credentials,
                    options=options,
                    traffic=self._traffic,
                )
                self.clients[name] = client
                client.probe(at_once=True)

    async def close(self) -> None:
        """Ask nobody any more; what was learnt is on disk."""
        if self._writing is not None:
            await self._writing
        for client in self.clients.values():
            await client.close()

    async def _write(self) -> None:
        """Write the addresses, and again if there are others by then."""
        written: Mapping[str, str] | None = None
        while written is not self._addresses:
            written = self._addresses
            try:
                await asyncio.to_thread(self._state.write_addresses, written)
            except LaserError as error:
                log.warning("%s", error)


def _is_host(client: str, address: str) -> bool:
    try:
        checked_address(address, client)
    except ContractError as error:
        log.warning("%s; it stays where it was", error)
        return False
    return True
