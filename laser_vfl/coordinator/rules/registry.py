"""The registered clients: one process for each, with an incarnation that is never used again."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.core.errors import MismatchError, NameTaken, NotRegistered, quoted

log = logging.getLogger(__name__)


class Registry(Mapping[str, Registration]):
    """The registration of each client that has one."""

    def __init__(self, roster: Sequence[str], policy: MembershipPolicy) -> None:
        self.roster = tuple(roster)
        self._policy = policy
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
        if known.in_session and now - known.seen_at < self._policy.silent_s:
            raise NameTaken(
                f'a daemon named "{client}" is connected already, from {known.address}',
                hint="stop that one first, or correct `name`",
            )
        return None

    def check_listed(self, client: str) -> None:
        """Refuse a client that is not on the roster."""
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
            registration.rest(now, now + self._policy.return_s)

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it."""
        return {
            "last_incarnation": self._last_incarnation,
            "registrations": [registration.snapshot() for registration in self.values()],
        }

    def restore(self, stored: Mapping[str, Any], now: float) -> None:
        """Take over what a snapshot holds."""
        self._last_incarnation = stored["last_incarnation"]
        for one in stored["registrations"]:
            if one["client"] in self.roster:
                registration = Registration.restore(one, now, now + self._policy.return_s)
                self._registrations[registration.client] = registration
