"""How long a federation of real processes stands still when a client is lost."""

import os
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from laser_vfl.bench.step_bench import BATCH_SIZE, WIDTH, write_inputs
from laser_vfl.client.storage.step_log import read_end
from laser_vfl.core.errors import TrainingStopped
from laser_vfl.core.training.applied_steps import Applied
from laser_vfl.local_federation import LocalFederation
from laser_vfl.methods.training_settings import TrainingSettings

CRASH_AIM_S = 2.0
HANG_AIM_S = 2.0
"""On top of the deadline for a step."""
CHECKPOINT_AIM = 1.05

ENDLESS = 2**31 - 1
"""More epochs, or steps between checkpoints, than a run will reach."""

WARM_UP_STEPS = 20
POLL_S = 0.005
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class RecoveryBenchOptions:
    """How much work to measure."""

    repeats: int
    clients: int
    steps: int
    """With checkpoints, in each run that is compared with one without."""
    deadline_s: float
    """training.step_timeout_s where a client hangs."""


@dataclass
class RecoveryTimes:
    """Seconds, one figure for each repetition."""

    crash_s: list[float] = field(default_factory=list)
    rejoin_s: list[float] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    """The part of rejoin_s until the process was ready to be called."""
    hang_s: list[float] = field(default_factory=list)
    checkpoint_ratios: list[float] = field(default_factory=list)
    checkpoint_cpu_ratios: list[float] = field(default_factory=list)


def measure_recovery(options: RecoveryBenchOptions) -> dict[str, Any]:
    """Return the times until a federation trains on, and what checkpoints cost."""
    names = [f"client{k}" for k in range(options.clients)]
    measured = RecoveryTimes()
    with _endless_run(names) as run:
        for k in range(options.repeats):
            _crash(run, names[k % len(names)], measured)
    with _endless_run(names, step_timeout_s=options.deadline_s) as run:
        for k in range(options.repeats):
            _hang(run, names[k % len(names)], measured)
    for k in range(options.repeats):
        _compare_checkpoints(names, options.steps, measured, off_first=k % 2 == 1)
    return _summary(options, measured)


class EndlessRun:
    """A federation in a run that does not end by itself, and its clients' step logs."""

    def __init__(
        self, federation: LocalFederation, directory: Path, configs: dict[str, dict[str, Any]]
    ) -> None:
        self.federation = federation
        self.names = tuple(configs)
        self._directory = directory
        self._configs = configs
        self._logs: dict[str, Path] = {}

    def others(self, name: str) -> list[str]:
        """Everybody but one."""
        return [other for other in self.names if other != name]

    def start(self, names: Sequence[str]) -> None:
        """Start clients, also those that were killed; return when they can be called."""
        self.federation.start_clients({name: self._configs[name] for name in names}, stay=True)

    def settle(self) -> int:
        """Wait until all have trained together for a while; return the generation."""
        generation = max(self.last(name).generation for name in self.names)
        while True:
            self.wait(self.names, generation)
            first = max(self.last(name).step for name in self.names)
            self.wait(self.names, generation, first + WARM_UP_STEPS)
            now = {self.last(name).generation for name in self.names}
            if len(now) == 1:
                return now.pop()
            generation = max(now)

    def wait(self, names: Sequence[str], generation: int, step: int = 0) -> float:
        """Return when the last of some clients had applied a step, in a generation or later."""
        give_up_at = time.monotonic() + TIMEOUT_S
        waiting = list(names)
        while True:
            waiting = [name for name in waiting if not self._has_applied(name, generation, step)]
            now = time.monotonic()
            if not waiting:
                return now
            if now > give_up_at:
                raise TrainingStopped(f"{', '.join(waiting)} did not train on in {TIMEOUT_S:g} s")
            time.sleep(POLL_S)

    @property
    def num_steps(self) -> int:
        """How many steps all clients have applied."""
        return min(self.last(name).step for name in self.names) + 1

    @property
    def cpu_s(self) -> float:
        """CPU time of all clients up to now."""
        times = [psutil.Process(self.federation.pids[name]).cpu_times() for name in self.names]
        return sum(used.user + used.system for used in times)

    def last(self, name: str) -> Applied:
        """What a client applied last."""
        if name not in self._logs:
            runs = self._directory / f"{name}-state" / "runs"
            for path in runs.glob("*/steps.log"):
                self._logs[name] = path
        noted = read_end(self._logs[name]) if name in self._logs else []
        applied = [entry for entry in noted if isinstance(entry, Applied)]
        return applied[-1] if applied else Applied(-1, 0, 0)

    def _has_applied(self, name: str, generation: int, step: int) -> bool:
        last = self.last(name)
        return last.generation >= generation and last.step >= step


@contextmanager
def _endless_run(names: Sequence[str], **settings: Any) -> Iterator[EndlessRun]:
    """Yield a federation that has begun to train, with default settings apart from those given."""
    training = TrainingSettings(
        representation_dim=WIDTH, batch_size=BATCH_SIZE, epochs=ENDLESS, seed=1, **settings
    )
    with (
        tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory,
        LocalFederation(Path(directory), insecure=True) as federation,
    ):
        configs = write_inputs(Path(directory), list(names))
        address = federation.start_coordinator(
            {
                "federation": "bench",
                "listen": "127.0.0.1:0",
                "state": "./coordinator-state",
                "clients": list(names),
                "alignment": "hmac",
                "training": training.model_dump(),
                "log_level": "warning",
            }
        )
        configs = {name: {**config, "coordinator": address} for name, config in configs.items()}
        run = EndlessRun(federation, Path(directory), configs)
        run.start(names)
        run.wait(names, 1)
        yield run


def _crash(run: EndlessRun, name: str, measured: RecoveryTimes) -> None:
    """Kill a client, see the others go on, start it again and see it come back."""
    generation = run.settle()
    killed_at = time.monotonic()
    run.federation.kill(name)
    went_on_at = run.wait(run.others(name), generation + 1)
    measured.crash_s.append(went_on_at - killed_at)
    without = max(run.last(other).generation for other in run.others(name))
    started_at = time.monotonic()
    run.start([name])
    measured.start_s.append(time.monotonic() - started_at)
    measured.rejoin_s.append(run.wait([name], without + 1) - started_at)


def _hang(run: EndlessRun, name: str, measured: RecoveryTimes) -> None:
    """Stop a client, see the others go on, and let it come back."""
    generation = run.settle()
    pid = run.federation.pids[name]
    stopped_at = time.monotonic()
    os.kill(pid, signal.SIGSTOP)
    try:
        went_on_at = run.wait(run.others(name), generation + 1)
    finally:
        os.kill(pid, signal.SIGCONT)
    measured.hang_s.append(went_on_at - stopped_at)
    run.wait([name], generation + 2)


def _compare_checkpoints(
    names: Sequence[str], steps: int, measured: RecoveryTimes, *, off_first: bool
) -> None:
    """Count the steps of two federations side by side, one of them without checkpoints.

    Whatever else the machine does meanwhile, it does to both.
    """
    with ExitStack() as stack:
        runs = {
            is_off: stack.enter_context(
                _endless_run(names, **({"checkpoint_every": ENDLESS} if is_off else {}))
            )
            for is_off in (off_first, not off_first)
        }
        for run in runs.values():
            run.wait(names, 1, WARM_UP_STEPS)
        before = {is_off: (run.num_steps, run.cpu_s) for is_off, run in runs.items()}
        runs[False].wait(names, 1, before[False][0] + steps)
        after = {is_off: (run.num_steps, run.cpu_s) for is_off, run in runs.items()}
    done, cpu_s = (
        {is_off: after[is_off][k] - before[is_off][k] for is_off in runs} for k in (0, 1)
    )
    measured.checkpoint_ratios.append(done[True] / done[False])
    measured.checkpoint_cpu_ratios.append(cpu_s[False] / done[False] / (cpu_s[True] / done[True]))


def _summary(options: RecoveryBenchOptions, measured: RecoveryTimes) -> dict[str, Any]:
    hang_aim_s = options.deadline_s + HANG_AIM_S
    return {
        "clients": options.clients,
        "repeats": options.repeats,
        **_figure("crash_s", measured.crash_s, CRASH_AIM_S),
        "hang_deadline_s": options.deadline_s,
        **_figure("hang_s", measured.hang_s, hang_aim_s),
        **_figure("rejoin_s", measured.rejoin_s),
        "rejoin_start_s": round(statistics.median(measured.start_s), 3),
        "checkpoint_every": TrainingSettings.model_fields["checkpoint_every"].default,
        "checkpoint_steps": options.steps,
        **_figure("checkpoint_ratio", measured.checkpoint_ratios, CHECKPOINT_AIM),
        **_figure("checkpoint_cpu_ratio", measured.checkpoint_cpu_ratios),
        "tls": False,
    }


def _figure(name: str, values: Sequence[float], aim: float | None = None) -> dict[str, Any]:
    """Return the median, what it is the median of, and whether it is what we aim at."""
    median = statistics.median(values)
    figure: dict[str, Any] = {
        name: round(median, 3),
        f"{name}_each": [round(value, 3) for value in values],
    }
    if aim is not None:
        figure[f"{name}_aim"] = aim
        figure[f"{name}_is"] = "met" if median <= aim else "missed"
    return figure
