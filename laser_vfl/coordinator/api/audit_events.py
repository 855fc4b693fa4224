"""What the coordinator's audit log says of clients, alignments and runs."""

from laser_vfl.coordinator.rules.alignment.alignment import Alignment
from laser_vfl.coordinator.rules.federation_observer import FederationObserver
from laser_vfl.coordinator.rules.membership.view_change import Departure
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.coordinator.rules.run import Run
from laser_vfl.observability.audit_log import AuditLog


class AuditEvents(FederationObserver):
    """Writes what happens in the federation to the audit log."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    def client_changed(self, event: str, registration: Registration, reason: str) -> None:
        """Note that a client has joined or left; one may do so without end."""
        self._audit.note_few(
            event,
            {"client": registration.client},
            identity=registration.identity,
            incarnation=registration.incarnation,
            address=registration.address,
            reason=reason,
        )

    def member_excluded(self, run: Run, departure: Departure, identity: str) -> None:
        """Note that a run goes on without a member, and why."""
        self._audit.note(
            "excluded",
            client=departure.client,
            identity=identity,
            run=run.id,
            generation=departure.generation,
            reason=departure.reason,
        )

    def happened(self, event: str, subject: Run | Alignment, reason: str) -> None:
        """Note what became of an alignment, or of a run."""
        if isinstance(subject, Run):
            self._audit.note_few(
                "run", {"state": event}, id=subject.id, members=subject.members, reason=reason
            )
        elif event != "aligning":
            self._audit.note_few(
                "alignment",
                {"purpose": subject.purpose.value, "outcome": event},
                id=subject.id,
                members=subject.members,
                num_rows=_num_rows(subject),
                reason=reason,
            )


def _num_rows(alignment: Alignment) -> dict[str, dict[str, int]]:
    """Return how many people of each table each member has; nothing without an outcome."""
    results = alignment.results or {}
    return {
        name: {table: outcome.num_rows for table, outcome in tables.items()}
        for name, tables in results.items()
    }
