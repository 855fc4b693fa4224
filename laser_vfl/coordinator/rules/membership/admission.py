"""Clients waiting to join a run under way, with an exponential back-off after each exclusion."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Self

from laser_vfl.coordinator.rules.directives import State, View
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.registration import Registration

log = logging.getLogger(__name__)

MAX_DOUBLINGS = 10

Registered = Mapping[str, Registration]
"""All registrations, by client."""


class Admission:
    """Decides which clients may join, and how long an excluded client has to wait."""

    def __init__(self, roster: Sequence[str], policy: MembershipPolicy) -> None:
        self._exclusions: Counter[str] = Counter()
        self._roster = tuple(roster)
        self._policy = policy
        self._not_before: dict[str, float] = {}
        self._visits: dict[str, list[float]] = {}
        """When each client recently stopped everybody by leaving, or by failing to join."""
        self._hold_ups: Counter[str] = Counter()
        """How often each client was excluded for holding up the others."""

    def snapshot(self) -> dict[str, int]:
        """Return what has to be on disk: how often each client was excluded."""
        return dict(self._exclusions)

    @classmethod
    def restore(
        cls, roster: Sequence[str], policy: MembershipPolicy, stored: Mapping[str, int]
    ) -> Self:
        """Return the admission that a snapshot was taken of."""
        restored = cls(roster, policy)
        restored._exclusions = Counter(stored)
        return restored

    def candidates(self, view: View, there: Registered, now: float) -> list[Registration]:
        """Return the clients that are ready to join, in roster order."""
        found = [r for name in self._roster if (r := there.get(name))]
        return [
            r
            for r in found
            if may_come_back(r, view.run)
            and r.report.state is State.READY
            and not view.has(r.client, r.incarnation)
            and now >= self._not_before.get(r.client, 0.0)
        ]

    def admissible(
        self, members: Sequence[Registration], view: View, there: Registered, now: float
    ) -> list[Registration]:
        """Return the clients that may join: each has streams to and from all members."""
        admitted: list[Registration] = []
        for joiner in self.candidates(view, there, now):
            others = [m for m in (*members, *admitted) if m.client != joiner.client]
            if all(_are_linked(joiner, other) for other in others):
                admitted.append(joiner)
        return admitted

    def excluded(self, client: str, now: float, held_up_s: float = 0.0) -> None:
        """Take note that a client was excluded, perhaps for holding up the others for `held_up_s`.

        From the second hold-up on, it waits at least as long as it has held up the others.
        """
        self._wait(client, self._exclusions[client], now)
        self._exclusions[client] += 1
        if held_up_s:
            doublings = min(self._hold_ups[client] - 1, MAX_DOUBLINGS)
            wait_s = min(held_up_s * 2**doublings, self._policy.longest_slow_rejoin_s)
            if self._hold_ups[client]:
                self._not_before[client] = max(self._not_before[client], now + wait_s)
            self._hold_ups[client] += 1

    def left(self, client: str, now: float, held_up_s: float = 0.0) -> None:
        """Take note that a client left by itself, or was admitted and then failed to join.

        Everybody stops each time. The first few times in an hour the client may rejoin at once,
        since a daemon may be restarted. After that it waits as if it had been excluded, and longer
        if it has taken long to stop before it left.
        """
        policy = self._policy
        visits = [at for at in self._visits.get(client, ()) if now - at < policy.visits_within_s]
        self._visits[client] = [*visits, now]
        if len(visits) >= policy.free_visits:
            doublings = min(len(visits) - policy.free_visits, MAX_DOUBLINGS)
            slow_s = min(held_up_s * 2**doublings, policy.longest_slow_rejoin_s)
            wait_s = max(self._wait(client, doublings, now), slow_s)
            self._not_before[client] = max(self._not_before[client], now + slow_s)
            log.info("%s comes and goes; it may join again in %g s", client, wait_s)

    def rest(self) -> None:
        """Let every client try at once, because the coordinator itself was away."""
        self._not_before.clear()

    def _wait(self, client: str, doublings: int, now: float) -> float:
        """Keep a client waiting, twice as long each time; return for how long."""
        policy = self._policy
        longest_s, doublings = policy.longest_rejoin_s, min(doublings, MAX_DOUBLINGS)
        wait_s: float = min(policy.first_rejoin_s * 2**doublings, longest_s)
        self._not_before[client] = max(self._not_before.get(client, 0.0), now + wait_s)
        return wait_s


def may_come_back(registration: Registration, run: str) -> bool:
    """Whether a client says that it has what it needs for a run."""
    return registration.available and registration.report.run == run


def _are_linked(a: Registration, b: Registration) -> bool:
    links = [a.report.links.get(b.incarnation), b.report.links.get(a.incarnation)]
    return all(link is not None and link.up for link in links)
