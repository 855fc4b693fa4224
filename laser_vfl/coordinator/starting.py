"""When a run that somebody wants may start."""

from collections.abc import Mapping

from laser_vfl.coordinator.directives import StartRule
from laser_vfl.coordinator.registration import Registration

Registrations = Mapping[str, Registration]


class Starting:
    """With all clients at once; with fewer, if the rule allows it, after some time."""

    def __init__(self, num_clients: int, rule: StartRule | None) -> None:
        self._num_clients = num_clients
        self._rule = rule
        self._quorum_since: float | None = None

    def is_quorate(self, registrations: Registrations) -> bool:
        """Whether so many are there that a run could start, once they have read their tables."""
        num_there = sum(r.available for r in registrations.values())
        return num_there >= (self._rule.quorum if self._rule else self._num_clients)

    def is_due(
        self, registrations: Registrations, now: float, *, is_wanted: bool, is_asked_for: bool
    ) -> bool:
        """Whether a run may start now. Who wants it has to be there, unless an operator does."""
        complete = [r for r in registrations.values() if r.complete]
        if is_wanted and len(complete) == self._num_clients:
            return True
        if not is_wanted or self._rule is None or len(complete) < self._rule.quorum:
            self._quorum_since = None
            return False
        if self._quorum_since is None:
            self._quorum_since = now
        has_wisher = is_asked_for or any(r.wants_run for r in complete)
        return has_wisher and now - self._quorum_since >= self._rule.after_s

    def begun(self) -> None:
        """The time counts anew."""
        self._quorum_since = None
