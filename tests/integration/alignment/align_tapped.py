"""A federation in plaintext with a tap in front of every daemon."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from align_wiretap import Tap

from laser_vfl.v1 import peer_pb2 as pb
from tests.support.daemons.harness import Process, Site, free_address


class Tapped:
    """Whatever one daemon sends another passes a tap of the one that is dialled."""

    def __init__(self, site: Site, roster: Sequence[str]) -> None:
        assert site.authority is None, "nothing can be read of what passes encrypted"
        self.site = site
        self.roster = list(roster)
        self._stack = ExitStack()
        names = ["coordinator", *roster]
        self.taps = {name: self._stack.enter_context(Tap()) for name in names}
        self.clients: dict[str, Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start_coordinator(self, training: Mapping[str, Any] | None = None, **more: Any) -> Process:
        config = self.site.coordinator_config(self.roster, training or {}, **more)
        coordinator = self.site.start_coordinator(config)
        self.taps["coordinator"].target = self.site.address
        self.site.address = self.taps["coordinator"].address
        return coordinator

    def start(self, name: str, **more: Any) -> Process:
        """Start a client, or start it again."""
        tap = self.taps[name]
        tap.target = free_address()
        config = self.site.client_config(name, advertise=tap.address, **more)
        self.clients[name] = self.site.start_client({**config, "listen": tap.target})
        return self.clients[name]

    def start_all(self, **more: Any) -> None:
        for name in self.roster:
            self.start(name, **more)

    def wait_served(self) -> None:
        for client in self.clients.values():
            client.wait_for_served()


def lists_handed_to(tap: Tap) -> list[tuple[pb.HandOnRequest, bytes]]:
    """The lists that a daemon was handed in rings: how each begins, and its points."""
    found = []
    for first, *rest in filter(None, tap.messages_to()):
        try:
            head = pb.HandOnRequest.FromString(first)
            parts = [pb.HandOnRequest.FromString(message).points for message in rest]
        except Exception:  # other calls have other messages
            continue
        if head.alignment and head.owner and head.incarnation and not head.points:
            found.append((head, b"".join(parts)))
    return found
