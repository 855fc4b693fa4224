"""A client with a certificate that does not keep to the protocol: unruly_client HABITS client run …

HABITS are names from `SAID` with commas between. Everything else is the real client.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from laser_vfl.cli import main
from laser_vfl.client.peers.peer_stream import PeerStream
from laser_vfl.client.run.run_member import RunMember
from laser_vfl.client.training.training_step import TrainingStep
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.core.schedule.schedule import Schedule
from laser_vfl.v1 import peer_pb2 as pb

AFTER = 40
"""How many frames a peer gets before something happens that happens once."""

NUM_LATE = 5
"""How many frames of an earlier life each peer gets."""

NEVER = 10**6
"""A step that no run here has."""

SAID = {
    "repeats": "sends everything twice",
    "stale": "sends old frames again",
    "swapped": "sends a gradient after the next representation",
    "early": "is two steps ahead",
    "late": "sends frames of its earlier life",
    "future": "sends a frame of a generation to come",
    "flood": "sends a flood",
    "misshapen": "sends a tensor of a wrong shape",
    "no_numbers": "sends no numbers",
    "too_long": "sends rows that are too long",
    "garbage": "sends bytes that are no frame",
    "impostor": "sends a frame in another's name",
}
"""The habits that there are, and how a client lets the test know that it has followed one."""

FLOOD_FRAMES = 400
FLOOD_BYTES = 1 << 20


class Unruly:
    """Changes what links send. Each habit is told of a frame, and passes on what it likes."""

    def __init__(self) -> None:
        self.num_sent: dict[PeerStream, int] = {}
        self.sent: dict[PeerStream, list[bytes]] = {}
        self.kept_back: dict[PeerStream, tuple[Any, bytes]] = {}
        self.send = PeerStream.send
        self.has_said: set[str] = set()

    def say_once(self, habit: str) -> None:
        """Let the test know of what happens all the time."""
        if habit not in self.has_said:
            self.has_said.add(habit)
            say(habit)

    def slip_in(self, link: PeerStream, *frames: bytes) -> None:
        """Write frames once, after what was sent before, and never again."""
        link._queue.extend(frames)
        link._filled.set()

    def is_due(self, link: PeerStream) -> bool:
        """Whether it is time for what happens once."""
        self.num_sent[link] = self.num_sent.get(link, 0) + 1
        return self.num_sent[link] == AFTER

    def repeats(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send everything twice."""
        self.send(link, kind, frame)
        self.slip_in(link, frame)
        self.say_once("repeats")

    def stale(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send old frames again, also those of a generation before."""
        sent = self.sent.setdefault(link, [])
        sent.append(frame)
        self.send(link, kind, frame)
        older = sent[-5:-3]
        self.slip_in(link, *older, *(_changed(old, generation=0) for old in older))
        if older:
            self.say_once("stale")

    def swapped(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send a gradient after the representation of the next step."""
        if kind == pb.FRAME_KIND_GRADIENT:
            self.kept_back[link] = kind, frame
            link._loop.call_later(0.3, self._catch_up, link)  # no representation may come
            return
        self.send(link, kind, frame)
        if self._catch_up(link):
            self.say_once("swapped")

    def _catch_up(self, link: PeerStream) -> bool:
        kept_back = self.kept_back.pop(link, None)
        if kept_back:
            self.send(link, *kept_back)
        return kept_back is not None

    def late(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Remember what was last sent; `linger` sends it when it is too late."""
        self.sent.setdefault(link, []).append(frame)
        self.send(link, kind, frame)

    def linger(self) -> None:
        """When the others go on without it, keep the streams open, and send on them once more."""
        register_anew = RunMember._register_anew

        async def come_back(attendance: RunMember) -> None:
            for link in attendance._mesh._streams.values():
                self.slip_in(link, *self.sent.get(link, ())[-NUM_LATE:])
            say("late")
            attendance._mesh = attendance._new_mesh()  # and so nobody closes those before
            await register_anew(attendance)

        RunMember._register_anew = come_back  # type: ignore[method-assign]

    def future(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send a frame of a generation that there is not, and one of a step that never comes."""
        generation = pb.Frame.FromString(frame).generation
        if self.is_due(link):
            say("future")
            self.slip_in(link, _changed(frame, generation=generation + 1, step=NEVER))
        self.send(link, kind, frame)

    def flood(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send far more than anybody can hold, all of steps to come."""
        if self.is_due(link):
            say("flood")
            padding = bytes(FLOOD_BYTES)
            ahead = pb.Frame.FromString(frame)
            ahead.tensor.data = padding
            for step in range(NEVER, NEVER + FLOOD_FRAMES):
                ahead.step = step
                self.slip_in(link, ahead.SerializeToString())
        self.send(link, kind, frame)

    def misshapen(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send a tensor of another shape than was agreed."""
        if self.is_due(link):
            say("misshapen")
            wrong = pb.Frame.FromString(frame)
            wrong.tensor.shape[1] += 1
            wrong.tensor.data += bytes(4 * wrong.tensor.shape[0])
            frame = wrong.SerializeToString()
        self.send(link, kind, frame)

    def no_numbers(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send a tensor of nothing but NaN."""
        if self.is_due(link):
            say("no_numbers")
            wrong = pb.Frame.FromString(frame)
            wrong.tensor.data = b"\xff" * len(wrong.tensor.data)
            frame = wrong.SerializeToString()
        self.send(link, kind, frame)

    def too_long(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send numbers, but far greater ones than anybody should."""
        if self.is_due(link):
            say("too_long")
            wrong = pb.Frame.FromString(frame)
            wrong.tensor.data = b"\0\0\0\x60" * (len(wrong.tensor.data) // 4)
            frame = wrong.SerializeToString()
        self.send(link, kind, frame)

    def garbage(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send bytes that are no frame."""
        if self.is_due(link):
            say("garbage")
            self.slip_in(link, b"\xff" * 50)
        self.send(link, kind, frame)

    def impostor(self, link: PeerStream, kind: Any, frame: bytes) -> None:
        """Send a frame in another's name."""
        if self.is_due(link):
            say("impostor")
            self.slip_in(link, _changed(frame, sender="somebody"))
        self.send(link, kind, frame)


def early() -> None:
    """At every third step send the representation of two steps later too."""
    schedules: list[Schedule] = []
    original_step, original_begin = Schedule.step, TrainingStep.begin

    def step(schedule: Schedule, number: int) -> Any:
        schedules[:] = [schedule]
        return original_step(schedule, number)

    def begin(training: TrainingStep) -> None:
        context, plan = training._context, training.plan
        ahead = plan.step + 2
        in_epoch = (
            ahead // schedules[0].steps_per_epoch == plan.step // schedules[0].steps_per_epoch
        )
        if plan.step % 3 == 0 and in_epoch:
            learner = context.learner
            step_ahead = original_step(schedules[0], ahead)
            later = learner.plan(step_ahead, context.alignment, learner.context.everyone)
            if later is not None:
                with learner.evaluating():
                    own_bd = learner.models["representation"](context.inputs(later))
                context.transport.send_representations(later, own_bd.detach(), Phase.TRAINING)
                say("early")
        original_begin(training)

    Schedule.step = step  # type: ignore[method-assign]
    TrainingStep.begin = begin  # type: ignore[method-assign]


def say(habit: str) -> None:
    """Let the test know that it has happened."""
    what = SAID.get(habit, habit)
    print(f"{time.monotonic():.3f} this client {what}", file=sys.stderr, flush=True)


def _changed(frame: bytes, **changes: Any) -> bytes:
    message = pb.Frame.FromString(frame)
    for name, value in changes.items():
        setattr(message, name, value)
    return message.SerializeToString()


def adopt(habits: str) -> None:
    """Behave from now on as told."""
    for habit in habits.split(","):
        if habit == "early":
            early()
            continue
        unruly = Unruly()
        if habit == "late":
            unruly.linger()
        act: Callable[[PeerStream, Any, bytes], None] = getattr(unruly, habit)

        def send(link: PeerStream, kind: Any, frame: bytes, act: Any = act) -> None:
            act(link, kind, frame)

        PeerStream.send = send  # type: ignore[method-assign]


if __name__ == "__main__":
    adopt(sys.argv.pop(1))
    main()
