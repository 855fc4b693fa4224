"""What operators ask of running daemons, in plain Python: no protobuf type leaves this package."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from laser_vfl.core.errors import ConfigError, ContractError
from laser_vfl.core.subsets import clients_in, has, mask_of, subset_name
from laser_vfl.remote.calls import Access, call, call_patiently, open_channel
from laser_vfl.v1 import coordinator_pb2, coordinator_pb2_grpc, prediction_pb2, prediction_pb2_grpc

TIMEOUT_S = 10.0
MAX_SEED = 2**63 - 1


def coordinator_status(address: str, access: Access) -> dict[str, Any]:
    """Return how a federation is doing.

    Keys: federation, release, run, training, seed (of the run, or of the next one), wanted,
    waiting_for, clients, last_run, last_outcome, num_samples; and of the run that trains, or of the
    last one: generation, members, departures, checkpoint (the highest step whose checkpoint
    everybody has); settings (what the next run trains with, by the keys of `training` in the
    coordinator's configuration); run_terms (other keys of that file which decide about runs, each
    with its value as JSON); requests (who asks for a run that waits for an operator's
    approval), next_run_at (when the schedule asks for one, Unix time), held_run (finished and not
    served yet) and held_by (who holds it back). Each of `clients`, in
    roster order: client, up, address, has_head, activity, work (before a run: what it does,
    done, total, left_s; or None), model_run, next_step, num_steps, silent_s, num_samples,
    num_redone (steps), num_dropped (frames), num_offences (how often peers broke the contract
    with it, as it says), problem (why it cannot take part in the next run, or why the last came
    to nothing because of it) and held_back_s (for how long it is not called again because of
    that). Each of `departures`, the oldest first: client, generation (the first without it),
    reason, at (Unix time).
    """
    with closing(open_channel(address, access)) as channel:
        ask = coordinator_pb2_grpc.CoordinatorStub(channel).GetStatus
        status = call_patiently(ask, coordinator_pb2.GetStatusRequest(), address, TIMEOUT_S)
    return {
        "federation": status.federation,
        "release": status.release,
        "run": status.run or None,
        "training": status.training,
        "seed": status.seed,
        "wanted": status.wanted,
        "waiting_for": list(status.waiting_for),
        "clients": [_client_summary(client) for client in status.clients],
        "last_run": status.last_run or None,
        "last_outcome": status.last_outcome or None,
        "num_samples": status.num_samples,
        "generation": status.generation or None,
        "members": list(status.members),
        "departures": [_plain(one, "client generation reason at") for one in status.departures],
        "checkpoint": status.checkpoint or None,
        "settings": _settings(status.settings) if status.HasField("settings") else None,
        "run_terms": dict(sorted(status.run_terms.items())),
        "requests": list(status.requests),
        "next_run_at": _optional(status, "next_run_at"),
        "held_run": status.held_run or None,
        "held_by": list(status.held_by),
    }


def client_status(address: str, access: Access) -> dict[str, Any]:
    """Return how a client daemon is doing.

    Keys: federation, client, release, address, has_head, activity, work (before a run: what it
    does, done, total, left_s; or None), training_run, next_step, num_steps, model, next_model
    (trained and not served yet), next_is_published (by this client), held_by (who holds it
    back), num_held, serve_problem, num_requests, num_predicted,
    num_sample_errors, peers, subsets (blocks -> how many predictions used them); and of the run
    under way, or of the last one in the daemon's life: generation, members, num_redone (steps),
    frames_dropped (reason -> frames), offences (reason -> how often peers broke the contract
    with it). `model` is None or has run, trained_at (Unix time), num_steps, roster, heads,
    task, score_name, score, scores (blocks -> score). Each of `peers`: client, address,
    available, problem, usual_s, num_wanted, num_available, num_requests, num_ids_asked,
    num_ids_served, num_refused, num_limited.
    """
    with closing(open_channel(address, access)) as channel:
        return ask_client_status(prediction_pb2_grpc.PredictionStub(channel), address)


def retrain(address: str, access: Access, seed: int | None = None) -> dict[str, Any]:
    """Ask a coordinator for a new run; return its `seed` and whom it is `waiting_for`."""
    _check_seed(seed)
    with closing(open_channel(address, access)) as channel:
        ask = coordinator_pb2_grpc.CoordinatorStub(channel).Retrain
        response = call(ask, coordinator_pb2.RetrainRequest(seed=seed), address, TIMEOUT_S)
    return {"seed": response.seed, "waiting_for": list(response.waiting_for)}


def approve_run(
    address: str, access: Access, client: str, seed: int | None = None
) -> dict[str, Any]:
    """Let the run start that a client asks for; return its `seed` and whom it is `waiting_for`."""
    _check_seed(seed)
    request = coordinator_pb2.ApproveRunRequest(client=client, seed=seed)
    with closing(open_channel(address, access)) as channel:
        ask = coordinator_pb2_grpc.CoordinatorStub(channel).ApproveRun
        response = call(ask, request, address, TIMEOUT_S)
    return {"seed": response.seed, "waiting_for": list(response.waiting_for)}


def reject_run(address: str, access: Access, client: str) -> None:
    """Tell a client that the run that it asks for does not start."""
    with closing(open_channel(address, access)) as channel:
        ask = coordinator_pb2_grpc.CoordinatorStub(channel).RejectRun
        call(ask, coordinator_pb2.RejectRunRequest(client=client), address, TIMEOUT_S)


def cancel_run(address: str, access: Access) -> str:
    """Cancel the run that is asked for or aligned; return its id, empty if it had none yet."""
    with closing(open_channel(address, access)) as channel:
        ask = coordinator_pb2_grpc.CoordinatorStub(channel).CancelRun
        return str(call(ask, coordinator_pb2.CancelRunRequest(), address, TIMEOUT_S).run)


def publish_run(address: str, access: Access, run: str) -> None:
    """Publish a model that a client holds back; it is served when all others have, too."""
    with closing(open_channel(address, access)) as channel:
        ask = prediction_pb2_grpc.PredictionStub(channel).Publish
        call(ask, prediction_pb2.PublishRequest(run=run), address, TIMEOUT_S)


def align(address: str, access: Access, timeout_s: float) -> dict[str, Any]:
    """Ask a client daemon to align the tables of everybody who is there; return who has what.

    Keys: client, scheme, roster, members, absent, seconds, tables (train, test, serve -> overlap).
    An overlap has num_rows (of this client), num_samples (of anybody), num_shared (rows of this
    client that others hold too), missing_share (of the blocks that the members could hold; None
    without samples) and patterns, most frequent first: blocks (who holds them), num_samples, share.
    """
    with closing(open_channel(address, access)) as channel:
        ask = prediction_pb2_grpc.PredictionStub(channel).Align
        response = call(ask, prediction_pb2.AlignRequest(), address, timeout_s)
    roster, members = list(response.roster), list(response.members)
    if not {response.client} <= set(members) <= set(roster):
        raise ContractError("the clients of an alignment are not those of the federation")
    return {
        "client": response.client,
        "scheme": response.scheme,
        "roster": roster,
        "members": members,
        "absent": [client for client in roster if client not in members],
        "seconds": response.seconds,
        "tables": {
            table.table: _overlap(table, response.client, roster, members)
            for table in response.tables
        },
    }


def ask_client_status(stub: Any, address: str) -> dict[str, Any]:
    """Return the status of a client, see `client_status`, over a channel that is open."""
    request = prediction_pb2.GetClientStatusRequest()
    status = call_patiently(stub.GetClientStatus, request, address, TIMEOUT_S)
    roster = list(status.model.roster)
    return {
        **_plain(status, "federation client release address has_head activity"),
        "training_run": status.training_run or None,
        **_plain(status, "next_step num_steps"),
        "work": _work(status),
        "model": _model(status.model) if status.HasField("model") else None,
        "next_model": _model(status.next_model) if status.HasField("next_model") else None,
        **_plain(status, "next_is_published"),
        "held_by": list(status.held_by),
        "num_held": status.num_held,
        "serve_problem": status.serve_problem or None,
        **_plain(status, "num_requests num_predicted num_sample_errors"),
        "peers": [_peer(peer) for peer in status.peers],
        "subsets": {_named(one.blocks, roster): one.num_predicted for one in status.subsets},
        "generation": status.generation or None,
        "members": list(status.members),
        "num_redone": status.num_redone,
        "frames_dropped": dict(sorted(status.num_dropped.items())),
        "offences": dict(sorted(status.num_offences.items())),
    }


def _check_seed(seed: int | None) -> None:
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"a seed cannot be {seed}", hint="give one from 0 to 2^63 - 1")


def _settings(settings: coordinator_pb2.TrainingSettings) -> dict[str, Any]:
    return {field.name: getattr(settings, field.name) for field in settings.DESCRIPTOR.fields}


def _client_summary(client: coordinator_pb2.ClientSummary) -> dict[str, Any]:
    return {
        "client": client.client,
        "up": client.up,
        "address": client.address or None,
        "has_head": client.has_head,
        "activity": client.activity,
        "model_run": client.model_run or None,
        **_plain(client, "next_step num_steps silent_s num_samples"),
        **_plain(client, "num_redone num_dropped num_offences held_back_s"),
        "problem": client.problem or None,
        "work": _work(client),
    }


def _work(status: Any) -> dict[str, Any] | None:
    return _plain(status.work, "work done total left_s") if status.HasField("work") else None


def _model(model: prediction_pb2.ServedModel) -> dict[str, Any]:
    return {
        **_plain(model, "run trained_at num_steps"),
        "roster": list(model.roster),
        "heads": list(model.heads),
        **_plain(model, "task score_name"),
        "score": _optional(model, "score"),
        "scores": {
            _named(one.blocks, model.roster): _optional(one, "score") for one in model.scores
        },
    }


def _peer(peer: prediction_pb2.PeerStatus) -> dict[str, Any]:
    return {
        "client": peer.client,
        "address": peer.address or None,
        "available": peer.available,
        "problem": peer.problem or None,
        "usual_s": _optional(peer, "usual_s"),
        **_plain(peer, "num_wanted num_available num_requests"),
        **_plain(peer, "num_ids_asked num_ids_served num_refused num_limited"),
    }


def _overlap(
    table: prediction_pb2.TableOverlap, client: str, roster: list[str], members: list[str]
) -> dict[str, Any]:
    own = roster.index(client)
    possible = mask_of(map(roster.index, members))
    counts: dict[int, int] = {}
    for one in table.overlaps:
        if not one.blocks or one.blocks & ~possible:
            raise ContractError(f"a block is of none of the {len(members)} clients that aligned")
        if one.blocks in counts:
            raise ContractError(f"{_named(one.blocks, roster)} are counted twice")
        counts[one.blocks] = one.num_samples
    num_samples = sum(counts.values())
    num_blocks = sum(mask.bit_count() * count for mask, count in counts.items())
    # Equally frequent patterns come in an order that does not depend on the daemon.
    ordered = sorted(
        (mask for mask in counts if counts[mask]),
        key=lambda mask: (-counts[mask], mask.bit_count(), clients_in(mask)),
    )
    return {
        "num_rows": table.num_rows,
        "num_samples": num_samples,
        "num_shared": sum(n for mask, n in counts.items() if has(mask, own) and mask != 1 << own),
        "missing_share": 1 - num_blocks / (num_samples * len(members)) if num_samples else None,
        "patterns": [
            {
                "blocks": [roster[place] for place in clients_in(mask)],
                "num_samples": counts[mask],
                "share": counts[mask] / num_samples,
            }
            for mask in ordered
        ],
    }


def _plain(message: Any, names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names.split()}


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _named(mask: int, roster: Sequence[str]) -> str:
    if mask >> len(roster):
        raise ContractError(f"a block is of none of the {len(roster)} clients")
    return subset_name(mask, roster)
