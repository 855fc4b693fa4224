"""The status of the federation, as an operator reads it."""

from dataclasses import dataclass

from laser_vfl.coordinator.rules.directives import (
    Directive,
    Finished,
    Gathering,
    State,
    Stopped,
    Training,
    WorkReport,
)
from laser_vfl.coordinator.rules.membership.view_change import Departure
from laser_vfl.coordinator.rules.registration import Registration

ACTIVITIES = (
    "idle",
    "gathering",
    "aligning",
    "joining",
    "ready",
    "training",
    "stopped",
    "finished",
    "barred",
)
"""What a client that is connected can be doing."""

_WORDS = {State.READY: "ready", State.RUNNING: "training", State.FINISHED: "finished"}


@dataclass(frozen=True)
class ClientSummary:
    """One client of the roster; all but its name and samples is empty when it is not there."""

    client: str
    num_samples: int
    up: bool = False
    address: str = ""
    has_head: bool = False
    activity: str = ""
    model_run: str = ""
    next_step: int = 0
    """Of its training steps; evaluations, which are numbered after them, are not counted."""
    num_steps: int = 0
    silent_s: float = 0.0
    num_redone: int = 0
    num_dropped: int = 0
    num_offences: int = 0
    problem: str = ""
    """Why it cannot take part in the next run, or why the last came to nothing because of it."""
    held_back_s: float = 0.0
    """For how long it is not called to the next run yet."""
    work: WorkReport | None = None


@dataclass(frozen=True)
class FederationStatus:
    """The run, who wants one, who is there, and how the last one ended."""

    run: str
    training: bool
    seed: int
    wanted: bool
    waiting_for: tuple[str, ...]
    clients: tuple[ClientSummary, ...]
    last_run: str
    last_outcome: str
    num_samples: int
    generation: int = 0
    members: tuple[str, ...] = ()
    departures: tuple[Departure, ...] = ()
    checkpoint: int = 0
    requests: tuple[str, ...] = ()
    """The clients that ask for a run which an operator has to approve."""
    next_run_at: float | None = None
    """When the schedule asks for the next one, by the wall clock."""
    held_run: str = ""
    """The run that has finished and is not served yet."""
    held_by: tuple[str, ...] = ()
    """The clients that hold it back."""


def summarize(
    registration: Registration, directive: Directive, num_samples: int, now: float
) -> ClientSummary:
    """Describe a client that is registered."""
    report = registration.report
    return ClientSummary(
        registration.client,
        num_samples,
        up=registration.in_session,
        address=registration.address,
        has_head=registration.has_head,
        activity=_activity(registration, directive),
        model_run=report.model_run,
        next_step=min(report.next_step, report.num_steps or report.next_step),
        num_steps=report.num_steps,
        silent_s=max(0.0, now - registration.seen_at),
        num_redone=report.num_redone,
        num_dropped=report.num_dropped,
        num_offences=report.num_offences,
        problem=report.problem,
        work=report.work,
    )


def _activity(registration: Registration, directive: Directive) -> str:
    if isinstance(registration.verdict, Finished):
        return "finished"
    if registration.verdict is not None:
        return "idle"
    if isinstance(directive, Stopped):
        return "barred"
    if isinstance(directive, Gathering) and directive.call is not None:
        return "aligning"
    if isinstance(directive, Training):
        is_member = directive.view.has(registration.client, registration.incarnation)
        if not is_member:
            return "joining"
        if registration.report.stopped:
            return "stopped"
    is_idle = isinstance(directive, Gathering) and not directive.wanted
    return _WORDS.get(registration.report.state, "idle" if is_idle else "gathering")
