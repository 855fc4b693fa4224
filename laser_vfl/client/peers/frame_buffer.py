"""Where frames wait for the training thread: put by the event loop, taken as complete sets."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from laser_vfl.core.errors import LaserError
from laser_vfl.v1 import peer_pb2 as pb

Kind: TypeAlias = "pb.FrameKind.ValueType"
Key = tuple[int, Kind, int]
"""(peer, kind, step)"""

OutgoingFrame = tuple[int, Kind, bytes]
"""(peer, kind, the frame serialised)"""


class Interrupted(Exception):
    """What is under way has to end: the step is dropped, and perhaps done again with others."""


class FrameBuffer:
    """Frames of all peers. The taker is woken once, when all that it waits for is there.

    No peer can be further ahead than a representation and a gradient of each step under way.
    """

    def __init__(self, pipeline: int = 0) -> None:
        """`pipeline` is how many steps may be under way besides the oldest one."""
        self._max_held = max_held_frames(pipeline)
        self.dropped: Counter[str] = Counter()
        """How many frames were of no use, by reason."""
        self._lock = threading.Lock()
        self._generation = 0
        self._frames: dict[Key, pb.Frame] = {}
        self._ahead: dict[int, dict[Key, pb.Frame]] = {}
        """Of each peer the frames of the highest generation that we have not reached yet."""
        self._taken: dict[tuple[int, Kind], int] = {}
        self._missing: list[set[Key]] = []
        """Of each set that is waited for, what has not come; the oldest step's set is first."""
        self._complete = threading.Event()
        self._paused: dict[int, Callable[[], None]] = {}
        self._failure: LaserError | Interrupted | None = None

    def begin(self, generation: int) -> None:
        """Take frames of this generation from now on; what came early for it is there already."""
        with self._lock:
            self._drop("old generation", len(self._frames))
            self._generation = generation
            self._frames, ahead, self._ahead = {}, self._ahead, {}
            self._taken.clear()
            self._missing.clear()
            self._failure = None
            for peer, frames in ahead.items():
                for key, frame in frames.items():
                    if frame.generation == generation:
                        self._frames[key] = frame
                    elif frame.generation > generation:
                        self._ahead.setdefault(peer, {})[key] = frame
                    else:
                        self._drop("old generation")
            resumed, self._paused = list(self._paused.values()), {}
        for resume in resumed:
            resume()

    def put(self, peer: int, frame: pb.Frame) -> bool:
        """Take in a frame; an old or a repeated one is dropped and counted.

        Returns whether it is of use: it is not when it, or another for it, has to be dropped.
        """
        key = (peer, frame.kind, frame.step)
        with self._lock:
            if frame.generation < self._generation:
                self._drop("old generation")
                return False
            if frame.generation > self._generation:
                return self._put_ahead(peer, key, frame)
            if frame.step <= self._taken.get((peer, frame.kind), -1) or key in self._frames:
                self._drop("repeated")
                return False
            self._frames[key] = frame
            for missing in self._missing:
                missing.discard(key)
                if not missing:
                    self._complete.set()
            return True

    def has_room(self, peer: int, resume: Callable[[], None]) -> bool:
        """Tell whether the peer may send more; if not, `resume` is called when it may."""
        with self._lock:
            if self._num_held(peer) < self._max_held:
                return True
            self._paused[peer] = resume
            return False

    def holds(self, keys: Iterable[Key]) -> bool:
        """Tell whether all of these frames are here."""
        with self._lock:
            return all(key in self._frames for key in keys)

    def wait(self, sets: Sequence[Collection[Key]]) -> None:
        """Wait until all frames of one of these sets are here."""
        while not self._is_any_complete(sets):
            self._complete.wait()

    def take(self, keys: Iterable[Key]) -> dict[Key, pb.Frame]:
        """Wait for all of these frames and remove them."""
        wanted = set(keys)
        if not wanted:
            return {}
        while not (found := self._take_if_complete(wanted)):
            self._complete.wait()
        with self._lock:
            resumed = [self._paused.pop(peer) for peer, _, _ in found if peer in self._paused]
        for resume in resumed:
            resume()
        return found

    def drop(self, reason: str) -> None:
        """Count a frame that was dropped before it came here."""
        with self._lock:
            self._drop(reason)

    def fail(self, error: LaserError | Interrupted) -> None:
        """Nothing more will come: whoever waits, or will wait, for something missing hears why."""
        with self._lock:
            self._failure = self._failure or error
            self._complete.set()

    @property
    def failure(self) -> LaserError | Interrupted | None:
        """Why nothing more will come, if so."""
        return self._failure

    @property
    def waiting_for(self) -> tuple[int, ...]:
        """Whose frames the training thread waits for at this moment."""
        with self._lock:
            oldest = self._missing[0] if self._missing else ()
            return tuple(sorted({peer for peer, _, _ in oldest}))

    def _is_any_complete(self, sets: Sequence[Collection[Key]]) -> bool:
        with self._lock:
            return self._is_complete(sets)

    def _is_complete(self, sets: Sequence[Collection[Key]]) -> bool:
        """Note what is missing; raise if something is and nothing more will come."""
        self._missing = [set(keys) - self._frames.keys() for keys in sets]
        if not all(self._missing):
            self._missing = []
            return True
        self._complete.clear()
        if self._failure is not None:
            raise self._failure
        return False

    def _take_if_complete(self, wanted: set[Key]) -> dict[Key, pb.Frame]:
        """Remove these frames if all are there; a peer that went ahead may have withdrawn one."""
        with self._lock:
            if not self._is_complete([wanted]):
                return {}
            for peer, kind, step in wanted:
                self._taken[peer, kind] = step
            return {key: self._frames.pop(key) for key in wanted}

    def _put_ahead(self, peer: int, key: Key, frame: pb.Frame) -> bool:
        """Hold a frame of a peer that has heard of a view before us; it is done with the one here.

        Only those of the highest generation are held.
        """
        held = self._ahead.get(peer, {})
        highest = max((f.generation for f in held.values()), default=0)
        if frame.generation < highest:
            self._drop("old generation")
            return False
        num_replaced = len(held) if frame.generation > highest else 0
        if num_replaced:
            self._drop("old generation", num_replaced)
            held = {}
        if key in held:
            self._drop("repeated")
            return False
        self._ahead[peer] = {**held, key: frame}
        for stale in [k for k in self._frames if k[0] == peer]:
            del self._frames[stale]
            self._drop("old generation")
        return not num_replaced

    def _num_held(self, peer: int) -> int:
        return sum(key[0] == peer for key in self._frames) + len(self._ahead.get(peer, ()))

    def _drop(self, reason: str, num: int = 1) -> None:
        if num:
            self.dropped[reason] += num


def max_held_frames(pipeline: int) -> int:
    """Return how many frames of a peer are held at most, with so many steps under way."""
    return 2 * (pipeline + 1)
