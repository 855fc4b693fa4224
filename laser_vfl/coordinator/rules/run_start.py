"""When a run that somebody wants may start, with whom, and with which seed."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laser_vfl.coordinator.rules.policies import AlignmentPolicy
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.core.errors import ContractError

log = logging.getLogger(__name__)

MAX_SEED = 2**63 - 1

FREE_DEPARTURES = 3
"""So often a client that was called to a run may leave before its first step, without a wait."""

Registrations = Mapping[str, Registration]


@dataclass(frozen=True)
class StartRule:
    """Start with all clients, or `after_s` seconds after at least `quorum` are there."""

    quorum: int
    after_s: float


@dataclass(frozen=True)
class FailedMember:
    """A client that was called to a run and could not do its part."""

    reason: str
    not_before: float
    """It is not called again before."""
    count: int
    """How many runs in a row came to nothing because of it."""


class RunStart:
    """Decides when the next run starts: with all clients, or as its rule allows with fewer.

    Only a federation's first run starts because a client wants it. A later one replaces models
    that are served, so it is requested: by an operator, by the schedule, or by a client with an
    operator's approval.

    A run that came to nothing because a client could not do its part costs all others an
    alignment. That client is called again only after a wait that doubles each time.
    """

    def __init__(
        self,
        roster: Sequence[str],
        rule: StartRule | None,
        policy: AlignmentPolicy,
        seed: int,
        new_seed: Callable[[], int],
        *,
        has_trained: bool = False,
    ) -> None:
        self.has_trained = has_trained
        """Whether a run of this federation has finished, as far as the coordinator's disk says."""
        self.requested_seed: int | None = None
        """A run with this seed was requested, and it has not started yet."""
        self.approved_for = ""
        """The client whose request for that run was approved; it does not start without it."""
        self._roster = tuple(roster)
        self._rule = rule
        self._policy = policy
        self._was_cancelled = False
        """Whether an operator has cancelled the first run; it does not start by itself then."""
        self._configured_seed = seed
        self._new_seed = new_seed
        self._quorum_since: float | None = None
        self._failures: dict[str, FailedMember] = {}
        self._departures: Counter[str] = Counter()
        """How often each client left before the first step of a run, since one last started."""

    @property
    def is_requested(self) -> bool:
        """Whether a run has been requested that has not started yet."""
        return self.requested_seed is not None

    @property
    def needs_operator(self) -> bool:
        """Whether the wish of a client alone starts no run."""
        return self.has_trained or self._was_cancelled

    @property
    def seed(self) -> int:
        """The seed of the next run."""
        return self._configured_seed if self.requested_seed is None else self.requested_seed

    def request(self, seed: int | None) -> int:
        """An operator requests a run; returns its seed. All clients are called to it at once."""
        if seed is not None and not 0 <= seed <= MAX_SEED:
            raise ContractError(f"expected a seed from 0 to {MAX_SEED}, got {seed}")
        self.requested_seed = self._new_seed() if seed is None else seed
        self.approved_for = ""
        self._call_all_at_once()
        log.info("a run with seed %d was asked for", self.requested_seed)
        return self.requested_seed

    def approve(self, client: str, seed: int | None) -> int:
        """An operator approves the run that a client asks for; returns its seed."""
        approved = self.request(seed)
        self.approved_for = client
        return approved

    def withdraw(self) -> None:
        """Drop the request for a run that failed; it is not tried again."""
        self.requested_seed, self.approved_for = None, ""

    def cancel(self) -> None:
        """An operator cancels the next run; another starts when an operator asks for one."""
        self.withdraw()
        self._was_cancelled = True

    def started(self) -> None:
        """A run has started: nothing is requested, and nobody is held back any more."""
        self.withdraw()
        self._was_cancelled = False
        self._call_all_at_once()

    def finished(self) -> None:
        """A run has finished, so the schedule may ask for the next one."""
        self.has_trained = True

    def ready(self, registrations: Registrations, now: float) -> list[Registration]:
        """Return the clients that could start a run now, in roster order."""
        return [
            registration
            for name in self._roster
            if (registration := registrations.get(name))
            and registration.complete
            and not self.held_back_s(name, now)
        ]

    def is_quorate(self, registrations: Registrations) -> bool:
        """Whether enough clients are there for a run, once they have read their tables."""
        num_there = sum(r.available for r in registrations.values())
        return num_there >= (self._rule.quorum if self._rule else len(self._roster))

    def is_due(self, registrations: Registrations, now: float, *, is_wanted: bool) -> bool:
        """Whether a run may start now.

        A client that wants the run has to be ready, unless others have requested it.
        """
        ready = self.ready(registrations, now)
        if is_wanted and len(ready) == len(self._roster):
            return True
        is_quorum = self._rule is not None and len(ready) >= self._rule.quorum
        # Without labels nothing can be learnt, and the request would be spent on that.
        if not is_wanted or not is_quorum or not any(r.has_head for r in ready):
            self._quorum_since = None
            return False
        assert self._rule is not None
        if self._quorum_since is None:
            self._quorum_since = now
        return self._is_asked_for(ready) and now - self._quorum_since >= self._rule.after_s

    def _is_asked_for(self, ready: Sequence[Registration]) -> bool:
        """Whether a client is ready that wants this run, or none has to."""
        if self.approved_for:
            return any(r.client == self.approved_for for r in ready)
        return self.is_requested or any(r.wants_run for r in ready)

    def called(self) -> None:
        """Clients are called to a run; the quorum's time counts anew for the next one."""
        self._quorum_since = None

    def failed(self, client: str, reason: str, now: float) -> None:
        """A run came to nothing because this client could not do its part."""
        before = self._failures.get(client)
        count = before.count + 1 if before else 1
        policy = self._policy
        wait_s = min(policy.first_recall_s * 2 ** min(count - 1, 30), policy.longest_recall_s)
        self._failures[client] = FailedMember(reason, now + wait_s, count)

    def left(self, client: str, now: float) -> None:
        """A run came to nothing because this client left, as daemons that are restarted do."""
        self._departures[client] += 1
        if self._departures[client] > FREE_DEPARTURES:
            self.failed(client, "it left again and again before the first step", now)

    def held_back_s(self, client: str, now: float) -> float:
        """Return for how long a client is not called yet because its last run came to nothing."""
        failure = self._failures.get(client)
        return max(failure.not_before - now, 0.0) if failure else 0.0

    def problem_of(self, client: str) -> str:
        """Return why the last run came to nothing because of this client; empty if none did."""
        failure = self._failures.get(client)
        return failure.reason if failure else ""

    def _call_all_at_once(self) -> None:
        self._failures.clear()
        self._departures.clear()

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it."""
        return {
            "retrain_seed": self.requested_seed,
            "approved_for": self.approved_for,
            "was_cancelled": self._was_cancelled,
            "has_trained": self.has_trained,
        }

    def restore(self, stored: Mapping[str, Any], *, has_trained: bool) -> None:
        """Take over what a snapshot holds; the release before did not write all of it."""
        self.requested_seed = stored["retrain_seed"]
        self.approved_for = stored.get("approved_for", "")
        self._was_cancelled = stored.get("was_cancelled", False)
        self.has_trained |= stored.get("has_trained", has_trained)
