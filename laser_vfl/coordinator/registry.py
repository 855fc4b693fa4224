"""Who is registered: one process for each client, and numbers that no two processes share."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from laser_vfl.coordinator.directives import Finished
from laser_vfl.coordinator.registration import Registration
from laser_vfl.coordinator.suspicion import SILENT_S
from laser_vfl.core.errors import MismatchError, NameTaken, NotRegistered, quoted

log = logging.getLogger(__name__)

RETURN_S = 5.0
"""How long clients have to come back after a restart or a pause of the coordinator."""

_DURABLE = (
    "client",
    "nonce",
    "incarnation",
    "address",
    "has_head",
    "wants_run",
    "excluded",
    "identity",
)


class Registry(Mapping[str, Registration]):
    """The registration of each client that has one."""

    def __init__(self, roster: Sequence[str]) -> None:
        self.roster = tuple(roster)
        self._registrations: dict[str, Registration] = {}
        self._last_incarnation = 0

    def __getitem__(self, client: str) -> Registration:
        return self._registrations[client]

    def __iter__(self) -> Iterator[str]:
        return iter(self._registrations)

    def __len__(self) -> int:
        return len(self._registrations)

    def known(self, client: str, nonce: str, now: float) -> Registration | None:
        """Return the registration that this process has already; refuse a name that is taken."""
        self.check_listed(client)
        known = self.get(client)
        if known is None or known.excluded:
            return None
        if known.nonce == nonce:
            return known if known.verdict is None else None
        if known.in_session and now - known.seen_at < SILENT_S:
            raise NameTaken(
                f'a daemon named "{client}" is connected already, from {known.address}',
                hint="stop that one first, or correct `name`",
            )
        return None

    def check_listed(self, client: str) -> None:
        """Refuse who is not on the roster."""
        if client not in self.roster:
            raise MismatchError(
                f"{quoted(client)} is not on the roster",
                hint="correct `name`, or add it to `clients` in the coordinator's configuration",
            )

    def add(
        self,
        client: str,
        nonce: str,
        address: str,
        has_head: bool,
        wants_run: bool,
        now: float,
        identity: str = "",
    ) -> Registration:
        """Register a process; one that was registered under this name is forgotten."""
        self._last_incarnation += 1
        registration = Registration(
            client,
            nonce,
            self._last_incarnation,
            address,
            has_head,
            wants_run,
            now,
            identity,
            left_at=now,
        )
        self._registrations[client] = registration
        log.info("%s registered from %s", client, address)
        return registration

    def forget(self, registration: Registration) -> None:
        """Forget a process."""
        if self.knows(registration):
            del self._registrations[registration.client]

    def knows(self, registration: Registration) -> bool:
        """Whether this is still the client's registration, neither lost nor renewed."""
        return self._registrations.get(registration.client) is registration

    def find(self, client: str, incarnation: int) -> Registration:
        """Return the registration a message speaks for."""
        registration = self._registrations.get(client)
        if registration is None or registration.incarnation != incarnation:
            raise NotRegistered(f"the coordinator does not know this process as {quoted(client)}")
        return registration

    def rest(self, now: float) -> None:
        """Start all timeouts afresh; the coordinator has heard nobody for a while."""
        for registration in self.values():
            registration.seen_at = now
            registration.left_at = now + RETURN_S
            registration.moved_at = now

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it."""
        registrations = []
        for r in self.values():
            stored = {name: getattr(r, name) for name in _DURABLE}
            finished = r.verdict.run if isinstance(r.verdict, Finished) else None
            registrations.append({**stored, "finished": finished})
        return {"last_incarnation": self._last_incarnation, "registrations": registrations}

    def restore(self, stored: Mapping[str, Any], now: float) -> None:
        """Take over what a snapshot holds."""
        self._last_incarnation = stored["last_incarnation"]
        for fields in stored["registrations"]:
            finished = fields.pop("finished")
            if fields["client"] in self.roster:
                registration = Registration(**fields, seen_at=now + RETURN_S)
                registration.left_at = now + RETURN_S
                registration.moved_at = now
                registration.verdict = Finished(finished) if finished else None
                self._registrations[registration.client] = registration
