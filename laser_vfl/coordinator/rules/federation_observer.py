"""Observers of what happens in the federation: histories, logs and metrics."""

from laser_vfl.coordinator.rules.alignment.alignment import Alignment
from laser_vfl.coordinator.rules.membership.view_change import Departure
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.coordinator.rules.run import Run


class FederationObserver:
    """Is told of each event after it was decided. An observer overrides what it needs."""

    def happened(self, event: str, subject: Run | Alignment, reason: str) -> None:
        """A run or an alignment began, changed or ended."""

    def client_changed(self, event: str, registration: Registration, reason: str) -> None:
        """A client has joined or left."""

    def member_excluded(self, run: Run, departure: Departure, identity: str) -> None:
        """A run goes on without a member, whose certificate names this identity."""


class Observers(FederationObserver):
    """Tells several observers of each event, in the order given."""

    def __init__(self, *observers: FederationObserver) -> None:
        self._observers = observers

    def happened(self, event: str, subject: Run | Alignment, reason: str) -> None:
        """Tell all of a run or an alignment."""
        for observer in self._observers:
            observer.happened(event, subject, reason)

    def client_changed(self, event: str, registration: Registration, reason: str) -> None:
        """Tell all of a client."""
        for observer in self._observers:
            observer.client_changed(event, registration, reason)

    def member_excluded(self, run: Run, departure: Departure, identity: str) -> None:
        """Tell all of an excluded member."""
        for observer in self._observers:
            observer.member_excluded(run, departure, identity)
