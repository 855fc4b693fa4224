"""Calls of the coordinator's service, one after the other, by two members of a federation."""

import asyncio
import json
from pathlib import Path
from typing import Any

from fuzzing import Read, Target
from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from mutation import apart, changed_message, several

from laser_vfl.core.errors import LaserError
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.fakes.coordinator_calls import POINT, called, play_out

WAIT_S = 0.02
"""A call that waits for others is given up after so long, as by somebody who hangs up."""

RUN = "run-1"
WHO: dict[str, Any] = {"client": "a", "incarnation": 1}
HEARTBEAT = pb.Heartbeat(
    **WHO,
    run=RUN,
    state=pb.CLIENT_STATE_RUNNING,
    next_step=3,
    num_steps=9,
    prepared=True,
    stopped=1,
    waiting_for=["b"],
    phase_s=1.5,
    links=[pb.LinkReport(incarnation=2, up=True, for_s=1.0)],
    checkpoints=[2],
    model_run=RUN,
    problem="none",
)
REGISTER = pb.RegisterRequest(
    federation="churn",
    protocol_version=PROTOCOL_VERSION,
    client="a",
    nonce="nonce-a",
    address="a:1",
    has_head=True,
    release="0.1.0",
    wants_run=True,
)
GOODS: dict[str, list[Any]] = {
    "Register": [REGISTER],
    "Commit": [pb.CommitRequest(**WHO, alignment=RUN, num_points=1, sha256=bytes(32))],
    "SubmitIds": [
        pb.SubmitIdsRequest(**WHO, alignment=RUN, table=3, blinded=POINT, tables=b"\1"),
        pb.SubmitIdsRequest(client="b", incarnation=2, alignment=RUN, table=3, blinded=POINT),
    ],
    "FetchAlignment": [pb.FetchAlignmentRequest(**WHO, alignment=RUN)],
    "RefuseAlignment": [
        pb.RefuseAlignmentRequest(**WHO, alignment=RUN, peer="b", reason="it does not fit")
    ],
    "DryRun": [pb.DryRunRequest(**WHO)],
    "Session": [
        HEARTBEAT,
        pb.Heartbeat(**WHO, state=pb.CLIENT_STATE_JOINING, prepared=True),
        pb.Heartbeat(**WHO, state=pb.CLIENT_STATE_READY, run=RUN),
        pb.Heartbeat(**WHO, state=pb.CLIENT_STATE_GONE, reason="bye", leaving=True),
    ],
    "Retrain": [pb.RetrainRequest(seed=3)],
    "ApproveRun": [pb.ApproveRunRequest(client="a"), pb.ApproveRunRequest(client="b", seed=3)],
    "RejectRun": [pb.RejectRunRequest(client="a")],
    "GetStatus": [pb.GetStatusRequest()],
    "Greet": [pb.GreetRequest(federation="churn", client="a", protocol_version=PROTOCOL_VERSION)],
    "CancelRun": [pb.CancelRunRequest()],
}
CALLS = list(GOODS)
STREAMED = ("SubmitIds", "Session")


def _calls() -> st.SearchStrategy[bytes]:
    """Return calls as bytes: which one it is, and its message."""
    return st.integers(0, len(CALLS) - 1).flatmap(
        lambda place: changed_message(GOODS[CALLS[place]]).map(lambda data: bytes([place]) + data)
    )


def _open_service(_: Path) -> Read:
    return lambda data: play_out(lambda service, *both: _play(service, both, data), "a", "b")


async def _play(service: Any, both: Any, data: bytes) -> None:
    """Make the calls while an alignment is under way; afterwards all is as it should be."""
    await called(*both)
    for piece in apart(data):
        try:
            await _call(service, piece)
        except (LaserError, DecodeError, TimeoutError):
            continue
    federation = service._federation
    federation.tick(1e6)
    json.dumps(federation.snapshot())
    status = await service.GetStatus(pb.GetStatusRequest(), None)
    assert [client.client for client in status.clients] == ["a", "b"]
    status.SerializeToString()
    for caller in both:
        caller._session.cancel()
    await asyncio.gather(*(caller._session for caller in both), return_exceptions=True)


async def _call(service: Any, piece: bytes) -> None:
    name = CALLS[piece[0] % len(CALLS)] if piece else CALLS[0]
    message = type(GOODS[name][0]).FromString(piece[1:])

    async def stream() -> Any:
        yield message

    sent = stream() if name in STREAMED else message
    async with asyncio.timeout(WAIT_S):
        await getattr(service, name)(sent, _Context())


class _Context:
    """Takes what is written, and can send it."""

    async def write(self, message: Any) -> None:
        message.SerializeToString()


TARGETS = [Target("coordinator-calls", several(_calls(), 8), _open_service, share=6)]
