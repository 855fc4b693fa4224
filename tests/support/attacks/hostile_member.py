"""A member of a run that attacks the others: hostile_member HABIT client run …

Everything but its habit is the real client.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from laser_vfl.cli import main
from laser_vfl.client.peers.peer_stream import PeerStream
from laser_vfl.transport import message_limits as sizes
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1 import tensor_pb2 as tpb
from tests.support.attacks.unruly_client import Unruly, say

NUM_REPEATS = 5000
HUGE_BYTES = 8 << 20
NO_LIMIT = 1 << 30


def _first_value(value: float) -> Callable[[pb.Frame], None]:
    def spoil(frame: pb.Frame) -> None:
        values = np.frombuffer(frame.tensor.data, "<f4").copy()
        values[0] = value
        frame.tensor.data = values.tobytes()

    return spoil


def _overflow(frame: pb.Frame) -> None:
    frame.tensor.shape[:] = [2**31, 2**31]


def _dtype(frame: pb.Frame) -> None:
    frame.tensor.dtype = tpb.DTYPE_FLOAT16


def _short(frame: pb.Frame) -> None:
    frame.tensor.data = frame.tensor.data[:-4]


def _oversize(frame: pb.Frame) -> None:
    frame.tensor.data = bytes(HUGE_BYTES)


SPOILT: dict[str, Callable[[pb.Frame], None]] = {
    "nan": _first_value(float("nan")),
    "inf": _first_value(float("inf")),
    "huge": _first_value(1e30),
    "overflow": _overflow,
    "dtype": _dtype,
    "short": _short,
    "oversize": _oversize,
}


class Hostile(Unruly):
    """Sends one bad frame on each link, or repeats good ones."""

    def __init__(self, habit: str) -> None:
        super().__init__()
        self.habit = habit
        self.past: dict[str, list[bytes]] = {}

    def act(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send a frame, or something else."""
        if self.habit == "replay":
            self.replay(link, kind, frame)
        elif self.habit == "endless":
            self.endless(link, kind, frame)
        else:
            if self.is_due(link):
                say("attacks")
                spoilt = pb.Frame.FromString(frame)
                SPOILT[self.habit](spoilt)
                frame = spoilt.SerializeToString()
            self.send(link, kind, frame)

    def replay(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send with every frame one of an earlier run, if there was one, as of this process."""
        self.send(link, kind, frame)
        now, past = pb.Frame.FromString(frame), self.past.setdefault(link.peer.name, [])
        past.append(frame)
        old = pb.Frame.FromString(past[0])
        if old.run != now.run:
            say("attacks")
            old.incarnation = now.incarnation
            self.slip_in(link, old.SerializeToString())
            del past[0]

    def endless(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send one frame again and again."""
        self.send(link, kind, frame)
        if self.is_due(link):
            say("attacks")
            self.slip_in(link, *[frame] * NUM_REPEATS)


def lift_own_limit() -> None:
    """Let gRPC send what is too large, which it would refuse at this end already."""
    bounded = sizes.bounded
    sizes.bounded = lambda *, receive, send: bounded(receive=receive, send=NO_LIMIT)


if __name__ == "__main__":
    lift_own_limit()
    hostile = Hostile(sys.argv.pop(1))
    PeerStream.send = lambda link, kind, frame: hostile.act(link, kind, frame)  # type: ignore[method-assign]
    main()
