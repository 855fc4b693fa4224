"""What happens to a federation, as data; how it is brought about, and how one tells that it was."""

import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

from tests.support.attacks.unruly_client import SAID
from tests.support.daemons.harness import Process, eventually
from tests.support.trials.fault_models import SLUGGISH

if TYPE_CHECKING:
    from tests.support.trials.trial import Trial

DISK_BYTES = 128 << 10


@dataclass(frozen=True)
class Fault:
    """What happens, to whom, and when: once a client has applied a step, or at once."""

    what: str
    who: str = ""
    after: tuple[str, int] | None = None
    """(client, step)"""
    then_wait_s: float = 0.0
    size: float = 0.0
    """How many seconds something is late, or how many bytes there is room for."""


Sign = Callable[[], bool]
"""Tells at the end whether something has really happened."""

Cause = Callable[["Trial", Fault], Sign]


def _signal(number: signal.Signals) -> Cause:
    def act(trial: "Trial", fault: Fault) -> Sign:
        process = trial.process(fault.who)
        assert process.alive, f"{fault.who} was to be hit, and is dead already"
        process.signal(number)
        if number == signal.SIGKILL:
            assert process.wait_exit() == -signal.SIGKILL
        if number in (signal.SIGSTOP, signal.SIGCONT):
            stopped = number == signal.SIGSTOP
            eventually(lambda: _is_stopped(process) == stopped, f"{fault.who} has got a signal")
        return lambda: number != signal.SIGTERM or process.wait_exit() == 0

    return act


def _is_stopped(process: Process) -> bool:
    return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)


def _start(trial: "Trial", fault: Fault) -> Sign:
    if fault.who == "coordinator":
        trial.start_coordinator()
    else:
        trial.start(fault.who)
    return _always


def _cut(trial: "Trial", fault: Fault) -> Sign:
    proxy = trial.proxies[fault.who]
    before = proxy.num_cut
    proxy.cut()
    num_cut = proxy.num_cut - before
    return lambda: num_cut > 0


def _black_hole(trial: "Trial", fault: Fault) -> Sign:
    proxy = trial.proxies[fault.who]
    before = proxy.num_bytes_lost
    proxy.black_hole()
    return lambda: proxy.num_bytes_lost > before


def _heal(trial: "Trial", fault: Fault) -> Sign:
    trial.proxies[fault.who].heal()
    return _always


def _jitter(trial: "Trial", fault: Fault) -> Sign:
    proxy = trial.proxies[fault.who]
    proxy.delay(0.0, jitter=fault.size)
    return lambda: proxy.delayed_s > 10 * fault.size


def _full_disk(trial: "Trial", fault: Fault) -> Sign:
    """No file of a process grows beyond a size, as on a disk that is full."""
    process, most_bytes = trial.process(fault.who), int(fault.size or DISK_BYTES)
    assert len(process.stderr) < most_bytes / 2, "it could not say what is wrong"
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (most_bytes, hard))
    return lambda: "cannot be written" in process.stderr


def _free_disk(trial: "Trial", fault: Fault) -> Sign:
    process = trial.process(fault.who)
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    return _always


def _always() -> bool:
    return True


ACTIONS: dict[str, Cause] = {
    "kill": _signal(signal.SIGKILL),
    "stop": _signal(signal.SIGSTOP),
    "continue": _signal(signal.SIGCONT),
    "term": _signal(signal.SIGTERM),
    "start": _start,
    "cut": _cut,
    "black hole": _black_hole,
    "heal": _heal,
    "full disk": _full_disk,
    "free disk": _free_disk,
}
"""What happens when it is told to."""


def _dies(trial: "Trial", fault: Fault, part: str, factory: str, **options: object) -> Sign:
    assert fault.after is not None
    assert fault.after[0] == fault.who
    flag = trial.site.path / f"{fault.who}-has-died"
    options |= {"at": fault.after[1] + 2, "flag": str(flag)}  # batches are counted from 1
    trial.models[fault.who] = {part: factory, f"{part}_options": options}
    return flag.exists


def _dies_early(trial: "Trial", fault: Fault) -> Sign:
    return _dies(
        trial,
        fault,
        "representation",
        "tests.support.trials.fault_models:mortal",
        delay_s=trial.pace_s,
    )


def _dies_late(trial: "Trial", fault: Fault) -> Sign:
    return _dies(trial, fault, "fusion", "tests.support.trials.fault_models:mortal_head")


def _slow(trial: "Trial", fault: Fault) -> Sign:
    options = {"delay_s": fault.size}
    trial.models[fault.who] = {
        "representation": "tests.support.trials.fault_models:sluggish",
        "representation_options": options,
    }
    return lambda: SLUGGISH in trial.said_by(fault.who)


def _habit(trial: "Trial", fault: Fault) -> Sign:
    """All habits of a client have effect, the last one first."""
    program, *habits = trial.programs.get(fault.who, ("tests.support.attacks.unruly_client",))
    assert program == "tests.support.attacks.unruly_client"
    trial.programs[fault.who] = (program, ",".join([*habits, fault.what]))
    return lambda: SAID[fault.what] in trial.said_by(fault.who)


BUILT_IN: dict[str, Cause] = {
    "dies before its representation": _dies_early,
    "dies before its gradient": _dies_late,
    "slow": _slow,
    "jitter": _jitter,
    **dict.fromkeys(SAID, _habit),
}
"""What is there from the start, and happens when its time has come."""
