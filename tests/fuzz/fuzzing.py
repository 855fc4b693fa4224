"""Feeds made-up bytes to whatever reads them, and sees that nothing crashes, hangs or grows."""

import gc
import hashlib
import os
import random
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

from laser_vfl.core.errors import LaserError

CASES = Path(__file__).parent / "cases"
"""Inputs that were found to do harm, by target. Each is read again in every run of the tests."""

TOTAL_S = float(os.environ.get("LASER_VFL_FUZZ_S", "6"))
"""For all targets together, on one core."""
SEED = int(os.environ.get("LASER_VFL_FUZZ_SEED", "0"))

PER_ROUND = 300
LEAST = 20
"""Inputs that each target gets, whatever the time."""

HANG_CPU_S = 10.0
"""Of processor time, so that a machine that is busy with something else does not count."""
PEAK_BYTES = 256 << 20
"""By how much one input of some kilobytes may raise the memory that the process ever had."""
ROOM_BYTES = 3 << 30
"""What the process may allocate on top: a bomb fails and does not take the machine along."""

NUM_KEPT = 40
NUM_REPLAYS = 3
GROWTH_BYTES = 24 << 20

Read = Callable[[bytes], object]


class Crashed(AssertionError):
    """Something other than a clean refusal."""


class Hung(BaseException):
    """One input took too long."""


class _Input:
    """One input, in a report by its length: the case has the rest."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"<{len(self.data)} bytes>"


@dataclass(frozen=True)
class Target:
    """Something that reads bytes that others wrote.

    `opened` prepares a directory and returns what reads; a clean refusal is a `LaserError`, or
    what protobuf raises, which the interceptor turns into one.
    """

    name: str
    inputs: SearchStrategy[bytes]
    opened: Callable[[Path], Read]
    share: float = 1.0
    """How much more time than others it gets."""

    def cases(self) -> list[Path]:
        """Return what was found before."""
        return sorted((CASES / self.name).glob("*"))


def run_checked(read: Read, data: bytes) -> None:
    """Read once; raise `Crashed` unless it ends well, or is refused as an error for a person."""
    before = _peak_bytes()
    try:
        with _no_hang():
            read(data)
    except DecodeError:
        pass
    except LaserError as error:
        _check_text(error)
    except Hung:
        raise Crashed(f"it takes more than {HANG_CPU_S:g} s of processor time") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a panic of Rust is no Exception
        raise Crashed(_report(error)) from None
    grown = _peak_bytes() - before
    if grown > PEAK_BYTES:
        raise Crashed(f"{len(data)} bytes took {grown >> 20} MB of memory")


def fuzz(target: Target, read: Read, budget_s: float) -> int:
    """Feed a target for so long; return how many inputs it got. What does harm becomes a case.

    The input that is being read is in a file among the cases, so that it is still there if a
    library aborts the process.
    """
    until = time.monotonic() + budget_s
    kept, chance = [], random.Random(SEED)
    num = 0
    crashed: bytes | None = None
    being_read = _place(target, f"being-read-by-{os.getpid()}")

    def read_noted(data: bytes) -> None:
        being_read.write_bytes(data)
        read(data)

    def one(made: _Input) -> None:
        nonlocal num, crashed
        data = made.data
        # What has crashed does so again, whatever the time, when hypothesis asks a last time.
        if num >= LEAST and time.monotonic() > until and data != crashed:
            return
        num += 1
        if len(kept) < NUM_KEPT:
            kept.append(data)
        elif chance.random() < NUM_KEPT / num:
            kept[chance.randrange(NUM_KEPT)] = data
        try:
            run_checked(read_noted, data)
        except Crashed:
            crashed = data
            raise

    rounds = 0
    with _limited(), _removed(being_read):
        while not num >= LEAST or time.monotonic() < until:
            examples = settings(
                max_examples=PER_ROUND,
                database=None,
                derandomize=False,
                deadline=None,
                suppress_health_check=list(HealthCheck),
                print_blob=False,
            )(given(target.inputs.map(_Input))(one))
            try:
                seed(f"{SEED}/{target.name}/{rounds}")(examples)()
            except BaseException as error:
                if crashed is not None:  # and not merely interrupted
                    path = keep(target, crashed).relative_to(CASES.parent)
                    error.add_note(f"kept as {path}: commit it with the mend")
                raise
            rounds += 1
        check_no_growth(read_noted, kept)
    return num


def keep(target: Target, data: bytes) -> Path:
    """Write down an input for all later runs."""
    path = _place(target, hashlib.sha256(data).hexdigest()[:12])
    path.write_bytes(data)
    return path


def _place(target: Target, name: str) -> Path:
    path = CASES / target.name / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def check_no_growth(read: Read, kept: list[bytes]) -> None:
    """Read the same inputs again and again: what is left behind does not become more."""
    for _ in range(2):  # so that caches are as full as they get
        _replay(read, kept)
    objects, memory = len(gc.get_objects()), _memory_bytes()
    for _ in range(NUM_REPLAYS):
        _replay(read, kept)
    num_more, more = len(gc.get_objects()) - objects, _memory_bytes() - memory
    if num_more > max(50, NUM_REPLAYS * len(kept) // 2):
        raise Crashed(f"{num_more} objects stay of {NUM_REPLAYS * len(kept)} inputs")
    if more > GROWTH_BYTES:
        raise Crashed(f"{more >> 20} MB stay of {NUM_REPLAYS * len(kept)} inputs")


def _replay(read: Read, kept: list[bytes]) -> None:
    for data in kept:
        run_checked(read, data)
    gc.collect()


def _check_text(error: LaserError) -> None:
    """An error goes to a terminal, a log and perhaps a peer: text that can be written there."""
    try:
        str(error).encode()
    except UnicodeEncodeError:
        raise Crashed(f"{str(error)!r} cannot be printed") from None


def _report(error: BaseException) -> str:
    """Return where an error comes from. What it quotes need not be text that can be written."""
    text = "".join(traceback.format_exception(error))
    return text.encode("ascii", "backslashreplace").decode()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _memory_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


@contextmanager
def _limited() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    used = psutil.Process().memory_info().data
    most = used + ROOM_BYTES
    if before[1] != resource.RLIM_INFINITY:
        most = min(most, before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@contextmanager
def _removed(path: Path) -> Iterator[None]:
    """Remove a file in the end, and its folder if there is nothing else in it."""
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        with suppress(OSError):
            path.parent.rmdir()


@contextmanager
def _no_hang() -> Iterator[None]:
    def hung(*_: Any) -> None:
        raise Hung

    before = signal.signal(signal.SIGVTALRM, hung)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
