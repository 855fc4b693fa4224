"""A real client that says how many frames of a peer it holds, whenever there are more than ever."""

import sys

from laser_vfl.cli import main
from laser_vfl.client.peers.frame_buffer import FrameBuffer
from laser_vfl.v1 import peer_pb2 as pb

HELD = "frames held of one peer:"

put, most = FrameBuffer.put, 0


def watched_put(inbox: FrameBuffer, peer: int, frame: pb.Frame) -> None:
    """Take in a frame, and count."""
    global most
    put(inbox, peer, frame)
    with inbox._lock:
        held = inbox._num_held(peer)
    if held > most:
        most = held
        print(HELD, held, file=sys.stderr, flush=True)


if __name__ == "__main__":
    FrameBuffer.put = watched_put  # type: ignore[method-assign]
    main()
