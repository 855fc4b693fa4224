"""Frames that travel in one message, and what they are when they come."""

import pytest

from laser_vfl.transport.frames import apart, together
from laser_vfl.v1 import peer_pb2 as pb


def frame(step, num_bytes):
    made = pb.Frame(run="run", generation=1, step=step, kind=pb.FRAME_KIND_GRADIENT, sender="shop")
    made.tensor.data = bytes(num_bytes)
    return made


@pytest.mark.parametrize("lengths", [[5], [0, 1], [3, 100, 200], [10, 70_000, 1]])
def test_frames_come_apart_as_they_were_put_together(lengths):
    frames = [frame(step, length) for step, length in enumerate(lengths)]
    message = together([one.SerializeToString() for one in frames])
    found = apart(pb.Frame.FromString(message))
    assert [(one.step, len(one.tensor.data)) for one in found] == list(enumerate(lengths))
    assert found[1:] == frames[1:]
    assert together([frames[0].SerializeToString()]) == frames[0].SerializeToString()
