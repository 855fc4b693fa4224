"""Where frames wait for the training thread: put by the event loop, taken as a complete set."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

from laser_vfl.core.errors import LaserError
from laser_vfl.v1 import peer_pb2 as pb

MAX_HELD_FRAMES = 2
"""A representation and a gradient: no peer can be further ahead of us than that."""

Kind: TypeAlias = "pb.FrameKind.ValueType"
Key = tuple[int, Kind, int]
"""(peer, kind, step)"""


class Inbox:
    """Frames of all peers. The taker is woken once, when all that it waits for is there."""

    def __init__(self) -> None:
        self.dropped: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._frames: dict[Key, pb.Frame] = {}
        self._num_held: Counter[int] = Counter()
        self._taken: dict[tuple[int, Kind], int] = {}
        self._missing: set[Key] = set()
        self._complete = threading.Event()
        self._paused: dict[int, Callable[[], None]] = {}
        self._failure: LaserError | None = None

    def put(self, peer: int, frame: pb.Frame) -> None:
        """Take in a frame; a repeated one is dropped and counted."""
        key = (peer, frame.kind, frame.step)
        with self._lock:
            if frame.step <= self._taken.get((peer, frame.kind), -1) or key in self._frames:
                self.dropped["repeated"] += 1
                return
            self._frames[key] = frame
            self._num_held[peer] += 1
            self._missing.discard(key)
            if not self._missing:
                self._complete.set()

    def has_room(self, peer: int, resume: Callable[[], None]) -> bool:
        """Tell whether the peer may send more; if not, `resume` is called when it may."""
        with self._lock:
            if self._num_held[peer] < MAX_HELD_FRAMES:
                return True
            self._paused[peer] = resume
            return False

    def take(self, keys: Iterable[Key], timeout_s: float) -> dict[Key, pb.Frame]:
        """Wait for all of these frames and remove them. What does not come in time is left out."""
        wanted = set(keys)
        with self._lock:
            self._missing = wanted - self._frames.keys()
            if self._missing:
                self._complete.clear()
            elif wanted:
                self._complete.set()
            if self._failure is not None and self._missing:
                raise self._failure
        if wanted:
            self._complete.wait(timeout_s)
        with self._lock:
            if self._failure is not None and self._missing:
                raise self._failure
            found = {key: self._frames.pop(key) for key in wanted & self._frames.keys()}
            for peer, kind, step in found:
                self._taken[peer, kind] = step
                self._num_held[peer] -= 1
            resumed = [self._paused.pop(peer) for peer, _, _ in found if peer in self._paused]
        for resume in resumed:
            resume()
        return found

    def fail(self, error: LaserError) -> None:
        """Nothing more will come: whoever waits, or will wait, for something missing hears why."""
        with self._lock:
            self._failure = self._failure or error
            self._complete.set()

    @property
    def failure(self) -> LaserError | None:
        """Why nothing more will come, if so."""
        return self._failure
