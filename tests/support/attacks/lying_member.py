"""A member that misleads the coordinator: lying_member HABIT client run …

Everything but its habit is the real client.
"""

import sys
from typing import Any

from laser_vfl.cli import main
from laser_vfl.client.peers.peer_stream import PeerStream
from laser_vfl.client.run.run_member import RunMember
from laser_vfl.client.session.progress import Progress
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.attacks.unruly_client import say

PATIENT = 20
"""A member that sends nothing does so from this step on."""


def restless() -> None:
    """Leave as soon as it has joined, and come back as another process at once."""
    begin, register_anew = RunMember._begin, RunMember._register_anew

    async def leave_at_once(member: RunMember) -> None:
        await begin(member)
        member._membership.leave()
        member._progress.leaves(member._membership.stopped)
        say("leaves")
        member._report()

    async def come_back(member: RunMember) -> None:
        member._membership.leaving = member._progress.leaving = False
        await register_anew(member)

    RunMember._begin = leave_at_once  # type: ignore[method-assign]
    RunMember._register_anew = come_back  # type: ignore[method-assign]


def idle() -> None:
    """Send no frame any more, and say that it has just begun to wait for somebody."""
    send, describe = PeerStream.send, Progress.describe
    is_idle: list[bool] = []

    def say_nothing(link: PeerStream, kind: Any, frame: bytes) -> None:
        if is_idle:
            return
        send(link, kind, frame)

    def describe_falsely(progress: Progress, heartbeat: pb.Heartbeat) -> None:
        describe(progress, heartbeat)
        if progress.next_step < PATIENT or not progress.members:
            return
        if not is_idle:
            is_idle.append(True)
            say("sends nothing")
        if not heartbeat.stopped:
            heartbeat.waiting_for[:] = ["bank"]
            heartbeat.phase_s = 0.1

    PeerStream.send = say_nothing  # type: ignore[method-assign]
    Progress.describe = describe_falsely  # type: ignore[method-assign]


HABITS = {"restless": restless, "idle": idle}

if __name__ == "__main__":
    HABITS[sys.argv.pop(1)]()
    main()
