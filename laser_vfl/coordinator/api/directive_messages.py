"""What the rules decide, as messages."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from laser_vfl.coordinator.rules import directives
from laser_vfl.coordinator.rules.directives import Directive, Publication
from laser_vfl.coordinator.rules.federation_status import FederationStatus
from laser_vfl.core.release import __version__
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.alignment_messages import PURPOSES
from laser_vfl.v1 import coordinator_pb2 as pb

_REQUEST_STATES = {
    directives.RequestState.NONE: pb.REQUEST_STATE_UNSPECIFIED,
    directives.RequestState.PENDING: pb.REQUEST_STATE_PENDING,
    directives.RequestState.REJECTED: pb.REQUEST_STATE_REJECTED,
}


def directive_message(
    directive: Directive, addresses: Sequence[tuple[str, str]], publication: Publication
) -> pb.Directive:
    """Return a directive as a client hears it, with what all are told besides."""
    message = _phase(directive)
    for client, address in addresses:
        message.addresses.add(client=client, address=address)
    message.publication.CopyFrom(pb.Publication(**asdict(publication)))
    return message


def status_message(
    federation: str,
    settings: TrainingSettings,
    run_terms: Mapping[str, str],
    status: FederationStatus,
) -> pb.FederationStatus:
    """Return the status of the federation of this name, and what its runs are made with."""
    departures = [
        pb.Departure(client=d.client, generation=d.generation, reason=d.reason, at=d.at)
        for d in status.departures
    ]
    return pb.FederationStatus(
        federation=federation,
        release=__version__,
        settings=settings_message(settings),
        run_terms=run_terms,
        **{**asdict(status), "departures": departures},
    )


def settings_message(settings: TrainingSettings) -> pb.TrainingSettings:
    """Return what is the same for everybody."""
    return pb.TrainingSettings(**settings.model_dump())


def _call(call: directives.Call) -> pb.AlignmentCall:
    return pb.AlignmentCall(
        id=call.id,
        purpose=PURPOSES[call.purpose],
        run=call.run,
        number=call.number,
        members=[pb.AlignmentMember(**asdict(member)) for member in call.members],
        commitments=[
            pb.Commitment(
                client=c.client, num_points=c.num_points, sha256=c.sha256, num_known=c.num_known
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
        case directives.Gathering(run, waiting_for, wanted, call, refused, own_request):
            gathering = pb.Gathering(
                run=run,
                waiting_for=waiting_for,
                wanted=wanted,
                own_request=_REQUEST_STATES[own_request],
            )
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
