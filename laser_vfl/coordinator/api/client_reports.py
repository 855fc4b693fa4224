"""What a client says of itself, read from its message and bounded."""

import math
from collections.abc import Sequence

from laser_vfl.config.address import Address
from laser_vfl.coordinator.rules.directives import LinkReport, Report, State, WorkReport
from laser_vfl.core.errors import ConfigError, ContractError, printable, quoted
from laser_vfl.transport.message_limits import HEARTBEAT_BYTES
from laser_vfl.v1 import coordinator_pb2 as pb

MAX_TEXT = 300
"""How long an address, a nonce or the id of a run may be."""

MAX_LINKS = 200
MAX_CHECKPOINTS = 64

_STATES = {
    pb.CLIENT_STATE_JOINING: State.JOINING,
    pb.CLIENT_STATE_READY: State.READY,
    pb.CLIENT_STATE_RUNNING: State.RUNNING,
    pb.CLIENT_STATE_FINISHED: State.FINISHED,
}


def read_report(heartbeat: pb.Heartbeat, roster: Sequence[str]) -> Report:
    """Return what a heartbeat says; refuse what no client of ours would say."""
    if heartbeat.state not in _STATES:
        raise ContractError("a heartbeat without a state")
    if heartbeat.ByteSize() > HEARTBEAT_BYTES:
        raise ContractError("a heartbeat that says too much")
    if len(heartbeat.links) > MAX_LINKS or len(heartbeat.waiting_for) > len(roster):
        raise ContractError("a heartbeat that says too much")
    if any(name not in roster for name in heartbeat.waiting_for):
        raise ContractError("a heartbeat that waits for a client that is not on the roster")
    return Report(
        state=_STATES[heartbeat.state],
        run=short_text(heartbeat.run, "the id of a run"),
        stopped=heartbeat.stopped,
        next_step=heartbeat.next_step,
        num_steps=heartbeat.num_steps,
        waiting_for=tuple(heartbeat.waiting_for),
        phase_s=_seconds(heartbeat.phase_s),
        links={
            link.incarnation: LinkReport(link.up, _seconds(link.for_s), link.offences)
            for link in heartbeat.links
        },
        checkpoints=tuple(heartbeat.checkpoints[-MAX_CHECKPOINTS:]),
        leaving=heartbeat.leaving,
        model_run=short_text(heartbeat.model_run, "the id of a run"),
        prepared=heartbeat.prepared,
        num_unaligned=heartbeat.num_newcomers,
        naming=short_text(heartbeat.naming, "the id of an alignment"),
        num_redone=heartbeat.num_redone,
        num_dropped=heartbeat.num_dropped,
        num_offences=heartbeat.num_offences,
        problem=printable(heartbeat.problem[:MAX_TEXT]),
        next_run=short_text(heartbeat.next_run, "the id of a run"),
        holds=heartbeat.holds,
        work=_work(heartbeat.work) if heartbeat.HasField("work") else None,
    )


def short_text(text: str, what: str) -> str:
    """Return a client's text that others will see; refuse what is no single short line."""
    if len(text) > MAX_TEXT or not text.isprintable():
        raise ContractError(f"{quoted(text)} cannot be {what}")
    return text


def read_address(text: str) -> str:
    """Return where a client says that it can be reached; peers dial it as it is told here."""
    address = short_text(text, "an address")
    try:
        # A scope of IPv6 may be any text, and nobody needs one that is not ASCII.
        if address.isascii():
            return str(Address.parse(address))
    except ConfigError:
        pass
    raise ContractError(f"{quoted(text)} cannot be an address; it is host:port")


def _work(work: pb.Work) -> WorkReport:
    what = short_text(work.work, "some work")
    return WorkReport(what, min(work.done, work.total), work.total, _seconds(work.left_s))


def _seconds(value: float) -> float:
    return value if math.isfinite(value) and value >= 0 else 0.0
