"""Frames that travel in one message, and what they are when they come."""

import pytest
from google.protobuf.message import DecodeError

from laser_vfl.transport import frames as frames_module
from laser_vfl.transport.frames import MAX_FRAMES, apart, parsed_frame, together
from laser_vfl.v1 import peer_pb2 as pb


def frame(step, num_bytes):
    made = pb.Frame(run="run", generation=1, step=step, kind=pb.FRAME_KIND_GRADIENT, sender="shop")
    made.tensor.data = bytes(num_bytes)
    return made


@pytest.mark.parametrize("lengths", [[5], [0, 1], [3, 100, 200], [10, 70_000, 1]])
def test_frames_come_apart_as_they_were_put_together(lengths):
    frames = [frame(step, length) for step, length in enumerate(lengths)]
    message = together([one.SerializeToString() for one in frames])
    found = apart(parsed_frame(message))
    assert [(one.step, len(one.tensor.data)) for one in found] == list(enumerate(lengths))
    assert found[1:] == frames[1:]
    assert together([frames[0].SerializeToString()]) == frames[0].SerializeToString()


def test_as_many_frames_as_there_may_be_are_read():
    frames = [frame(step, 10).SerializeToString() for step in range(MAX_FRAMES)]
    assert len(apart(parsed_frame(together(frames)))) == MAX_FRAMES
    with pytest.raises(DecodeError):
        parsed_frame(together([*frames, frames[0]]))


EMPTY = b"R\0"
"""A further frame with nothing in it."""


@pytest.mark.parametrize(
    "data",
    [
        EMPTY * 500_000,
        frame(1, 10).SerializeToString() + EMPTY * 500_000,
        b"R\x80\x89\x7a" + EMPTY * 1_000_000,
        b"R\x02" + EMPTY,
        b":\x80\x89\x7a" + b"\x10\1" * 1_000_000,
        b"\x10\1" * 500_000,
        b"R\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"R",
        b"\x0f",
    ],
    ids=[
        "many",
        "a frame and many",
        "nested",
        "one nested",
        "shape",
        "twice",
        "length",
        "cut",
        "type",
    ],
)
def test_a_message_of_more_parts_than_frames_have_is_not_parsed(data, monkeypatch):
    """Of a megabyte of them, memory would take a hundred, and the event loop a long time."""
    monkeypatch.setattr(frames_module, "peer_pb2", None)
    with pytest.raises(DecodeError):
        parsed_frame(data)
