"""What the rules decide, as messages."""

from collections.abc import Sequence
from dataclasses import asdict

from laser_vfl.coordinator import directives
from laser_vfl.coordinator.directives import Directive
from laser_vfl.coordinator.status import FederationStatus
from laser_vfl.core.release import __version__
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.wire.alignments import PURPOSES, TABLES


def directive_message(directive: Directive, addresses: Sequence[tuple[str, str]]) -> pb.Directive:
    """Return a directive as a client hears it, with everybody's address."""
    message = _phase(directive)
    for client, address in addresses:
        message.addresses.add(client=client, address=address)
    return message


def status_message(federation: str, status: FederationStatus) -> pb.FederationStatus:
    """Return the status of the federation of this name."""
    return pb.FederationStatus(federation=federation, release=__version__, **asdict(status))


def _call(call: directives.Call) -> pb.AlignmentCall:
    return pb.AlignmentCall(
        id=call.id,
        purpose=PURPOSES[call.purpose],
        run=call.run,
        number=call.number,
        members=[pb.AlignmentMember(**asdict(member)) for member in call.members],
        commitments=[
            pb.Commitment(
                client=c.client, table=TABLES[c.table], num_points=c.num_points, sha256=c.sha256
            )
            for c in call.commitments
        ],
    )


def _training(training: directives.Training) -> pb.Training:
    view = training.view
    message = pb.Training(
        view=pb.View(
            run=view.run,
            generation=view.generation,
            members=[pb.ViewMember(**asdict(member)) for member in view.members],
            seed=view.seed,
            heads=view.heads,
        ),
        stop=training.stop,
        joiners=[pb.AlignmentMember(**asdict(joiner)) for joiner in training.joiners],
        complete=training.complete,
        waiting_for=training.waiting_for,
        left_out=training.left_out,
    )
    if training.resume is not None:
        message.resume = training.resume
    return message


def _phase(directive: Directive) -> pb.Directive:
    match directive:
        case directives.Gathering(run, waiting_for, wanted, call, refused):
            gathering = pb.Gathering(run=run, waiting_for=waiting_for, wanted=wanted)
            if call is not None:
                gathering.call.CopyFrom(_call(call))
            if refused is not None:
                gathering.refused.CopyFrom(pb.RefusedDryRun(**asdict(refused)))
            return pb.Directive(gathering=gathering)
        case directives.Training():
            return pb.Directive(training=_training(directive))
        case directives.Stopped(run, reason):
            return pb.Directive(stopped=pb.Stopped(run=run, reason=reason))
        case directives.Finished(run):
            return pb.Directive(finished=pb.Finished(run=run))
