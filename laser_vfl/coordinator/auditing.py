"""What the coordinator's audit log says of clients, alignments and runs."""

from laser_vfl.coordinator.alignment import Alignment
from laser_vfl.coordinator.changes import Departure
from laser_vfl.coordinator.registration import Registration
from laser_vfl.coordinator.run import Run
from laser_vfl.wire.audit import Audit


def note_client(audit: Audit, event: str, registration: Registration, reason: str) -> None:
    """Note that a client has joined or left; one may do so without end."""
    audit.note_few(
        event,
        {"client": registration.client},
        identity=registration.identity,
        incarnation=registration.incarnation,
        address=registration.address,
        reason=reason,
    )


def note_excluded(audit: Audit, run: Run, departure: Departure, identity: str) -> None:
    """Note that a run goes on without a member, and why."""
    audit.note(
        "excluded",
        client=departure.client,
        identity=identity,
        run=run.id,
        generation=departure.generation,
        reason=departure.reason,
    )


def note_subject(audit: Audit, event: str, subject: Run | Alignment, reason: str) -> None:
    """Note what became of an alignment, or of a run."""
    if isinstance(subject, Run):
        audit.note_few(
            "run", {"state": event}, id=subject.id, members=subject.members, reason=reason
        )
    elif event != "aligning":
        audit.note_few(
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
