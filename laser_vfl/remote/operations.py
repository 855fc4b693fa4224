"""What operators ask of running daemons, in plain Python: no protobuf type leaves this package."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import grpc

from laser_vfl.config.address import Address
from laser_vfl.core import errors
from laser_vfl.core.subsets import subset_name
from laser_vfl.v1 import coordinator_pb2, coordinator_pb2_grpc, prediction_pb2, prediction_pb2_grpc
from laser_vfl.wire.credentials import CHECK_TLS, Credentials, load_credentials
from laser_vfl.wire.protocol import FRAME_OPTIONS, KEEPALIVE
from laser_vfl.wire.status import FailedCall, error_from, is_ours

TIMEOUT_S = 10.0
MAX_SEED = 2**63 - 1

_OPTIONS = [
    *KEEPALIVE,
    *FRAME_OPTIONS,
    # What is meant for loopback must not go to a proxy.
    ("grpc.enable_http_proxy", 0),
    # An application outlives the daemon that it asks; gRPC would wait two minutes.
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def coordinator_status(address: str, credentials: Credentials) -> dict[str, Any]:
    """Return how a federation is doing.

    Keys: federation, release, run, training, seed (of the run, or of the next one), wanted,
    waiting_for, clients, last_run, last_outcome, num_samples. Each of `clients`, in roster order:
    client, up, address, has_head, activity, model_run, next_step, num_steps, silent_s, num_samples.
    """
    with closing(open_channel(address, credentials)) as channel:
        ask = coordinator_pb2_grpc.CoordinatorStub(channel).GetStatus
        status = call(ask, coordinator_pb2.GetStatusRequest(), address, TIMEOUT_S)
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
    }


def client_status(address: str, credentials: Credentials) -> dict[str, Any]:
    """Return how a client daemon is doing.

    Keys: federation, client, release, address, has_head, activity, training_run, next_step,
    num_steps, model, num_held, serve_problem, num_requests, num_predicted, num_sample_errors,
    peers, subsets (blocks -> how many predictions used them). `model` is None or has run,
    trained_at (Unix time), num_steps, roster, heads, task, score_name, score, scores (blocks ->
    score). Each of `peers`: client, address, available, problem, usual_s, num_wanted,
    num_available, num_requests, num_ids_asked, num_ids_served, num_refused.
    """
    with closing(open_channel(address, credentials)) as channel:
        return ask_client_status(prediction_pb2_grpc.PredictionStub(channel), address)


def retrain(address: str, credentials: Credentials, seed: int | None = None) -> dict[str, Any]:
    """Ask a coordinator for a new run; return its `seed` and whom it is `waiting_for`."""
    if seed is not None and not 0 <= seed <= MAX_SEED:
        raise errors.ConfigError(f"a seed cannot be {seed}", hint="give one from 0 to 2^63 - 1")
    with closing(open_channel(address, credentials)) as channel:
        ask = coordinator_pb2_grpc.CoordinatorStub(channel).Retrain
        response = call(ask, coordinator_pb2.RetrainRequest(seed=seed), address, TIMEOUT_S)
    return {"seed": response.seed, "waiting_for": list(response.waiting_for)}


def credentials_for(
    address: str, ca: str | Path | None, cert: str | Path | None, key: str | Path | None
) -> Credentials:
    """Return what to present to a daemon: three files, or nothing at all on loopback."""
    dialled = _dialled(address)
    if ca and cert and key:
        try:
            return load_credentials(Path(ca), Path(cert), Path(key))
        except errors.IdentityError as error:
            hint = "check ca, cert and key" if error.hint == CHECK_TLS else error.hint
            raise errors.IdentityError(error.message, hint=hint, where=error.where) from None
    given = {"ca": ca, "cert": cert, "key": key}
    if any(given.values()):
        lacking = " and ".join(name for name, path in given.items() if not path)
        raise errors.ConfigError(
            f"TLS needs ca, cert and key; {lacking} not given", hint="give all three or none"
        )
    if not dialled.is_loopback:
        raise errors.IdentityError(
            f"{dialled} is not on loopback, and there is no certificate to reach it with",
            hint="give ca, cert and key",
        )
    return Credentials()


def open_channel(address: str, credentials: Credentials) -> grpc.Channel:
    """Return a channel for many threads; nothing is dialled before the first call."""
    target = str(_dialled(address))
    if credentials.secure:
        return grpc.secure_channel(target, credentials.for_channel(), options=_OPTIONS)
    return grpc.insecure_channel(target, options=_OPTIONS)


def call(ask: Callable[..., Any], request: Any, address: str, timeout_s: float) -> Any:
    """Return what a daemon answers; a call that fails is an error of ours, for a person."""
    try:
        return ask(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise _explained(cast(FailedCall, error), address, timeout_s) from None


def ask_client_status(stub: Any, address: str) -> dict[str, Any]:
    """Return the status of a client, see `client_status`, over a channel that is open."""
    request = prediction_pb2.GetClientStatusRequest()
    status = call(stub.GetClientStatus, request, address, TIMEOUT_S)
    roster = list(status.model.roster)
    return {
        **_plain(status, "federation client release address has_head activity"),
        "training_run": status.training_run or None,
        **_plain(status, "next_step num_steps"),
        "model": _model(status.model) if status.HasField("model") else None,
        "num_held": status.num_held,
        "serve_problem": status.serve_problem or None,
        **_plain(status, "num_requests num_predicted num_sample_errors"),
        "peers": [_peer(peer) for peer in status.peers],
        "subsets": {_named(one.blocks, roster): one.num_predicted for one in status.subsets},
    }


def _dialled(text: str) -> Address:
    address = Address.parse(text)
    if address.is_wildcard or address.port == 0:
        raise errors.ConfigError(
            f"nobody can be reached at {address}", hint="give the address of the ready line"
        )
    return address


def _explained(error: FailedCall, address: str, timeout_s: float) -> errors.LaserError:
    details = error.details() or ""
    if is_ours(error) or "handshake failed" in details.lower():
        return error_from(error, doing=f"asking {address}", hint="")
    code = error.code()
    if code is grpc.StatusCode.UNAVAILABLE:
        hint = "is the daemon up, and are both sides on TLS or both without?"
        return errors.AddressError(f"nobody answers at {address}", hint=hint)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return errors.AddressError(
            f"{address} did not answer within {timeout_s:g} s", hint="allow more time, or try again"
        )
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        if "larger than max" in details:
            return errors.DataError(
                "this is too much for one request", hint="ask for fewer samples at a time"
            )
        return errors.LimitExceeded(f"{address} is too busy", hint="try again later")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.MismatchError(
            f"the daemon at {address} does not answer such questions",
            hint="is it the right address, and the same release?",
        )
    return error_from(error, doing=f"asking {address}")


def _client_summary(client: coordinator_pb2.ClientSummary) -> dict[str, Any]:
    return {
        "client": client.client,
        "up": client.up,
        "address": client.address or None,
        "has_head": client.has_head,
        "activity": client.activity,
        "model_run": client.model_run or None,
        **_plain(client, "next_step num_steps silent_s num_samples"),
    }


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
        **_plain(peer, "num_ids_asked num_ids_served num_refused"),
    }


def _plain(message: Any, names: str) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names.split()}


def _optional(message: Any, name: str) -> Any:
    return getattr(message, name) if message.HasField(name) else None


def _named(mask: int, roster: Sequence[str]) -> str:
    if mask >> len(roster):
        raise errors.ContractError(f"a block is of none of the {len(roster)} clients")
    return subset_name(mask, roster)
