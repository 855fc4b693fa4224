"""What a client shows of its training: a progress bar or plain lines, and metrics.jsonl."""

import logging
import sys
import time
from types import TracebackType
from typing import Any, Self

import psutil
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.observability.tcp_counters import tcp_bytes_sent

log = logging.getLogger(__name__)

METRICS_INTERVAL_S = 1.0
LOG_INTERVAL_S = 5.0


class ProgressDisplay:
    """Told of every step; writes after the first and the last, and once a second between."""

    def __init__(
        self,
        name: str,
        state: StateDirectory,
        num_steps: int,
        steps_per_epoch: int,
        progress: Progress,
        metrics: ClientMetrics,
        run: str,
    ) -> None:
        self._progress = progress
        self._metrics = metrics
        self._run = run
        self._state = state
        self._num_steps = num_steps
        self._steps_per_epoch = steps_per_epoch
        self._process = psutil.Process()
        self._losses: list[float] = []
        self._last_time = self._logged_at = time.monotonic()
        self._last_step = self._done = 0
        self._is_first = True
        self._last_bytes = tcp_bytes_sent()
        self._bar = Bar(
            TextColumn(f"[bold]{name}[/bold]"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} {task.fields[note]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("training", total=num_steps, note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def goes_on_from(self, next_step: int) -> None:
        """Take note of where it stands; steps that others did meanwhile do not count as speed."""
        if next_step != self._done:
            self._last_time, self._last_step = time.monotonic(), next_step
            self._last_bytes = tcp_bytes_sent()
        self._done = next_step

    def step_done(self, next_step: int, loss: float | None) -> None:
        """Take note that everything before `next_step` is done; `loss` is None without a head."""
        if loss is not None:
            self._losses.append(loss)
        now = time.monotonic()
        due = now - self._last_time >= METRICS_INTERVAL_S
        self._done = next_step
        if due or self._is_first or next_step == self._num_steps:
            self._is_first = False
            self._write(next_step, now)

    def note(self, event: str, **fields: Any) -> None:
        """Write a line about something else that happened, from whichever thread."""
        line = {"time": time.time(), "run": self._run, "event": event, **fields}
        self._state.append_metrics(line)

    def _write(self, next_step: int, now: float) -> None:
        elapsed = max(now - self._last_time, 1e-9)
        sent = tcp_bytes_sent()
        num_bytes = None
        if sent is not None and self._last_bytes is not None:
            num_bytes = max(
                0, sent - self._last_bytes
            )  # a closed connection is not counted any more
        line: dict[str, Any] = {
            "time": time.time(),
            "run": self._run,
            "epoch": (next_step - 1) // self._steps_per_epoch,
            "step": next_step,
            "loss": sum(self._losses) / len(self._losses) if self._losses else None,
            "steps_per_s": (next_step - self._last_step) / elapsed,
            "bytes_per_s": None if num_bytes is None else num_bytes / elapsed,
            "wire_bytes": sent,
            "cpu_s": sum(self._process.cpu_times()[:2]),
            "rss_mb": self._process.memory_info().rss / 1e6,
            "generation": self._progress.generation,
            "members": self._progress.members,
            "steps_redone": self._progress.num_redone,
            "frames_dropped": dict(self._progress.dropped),
            "offences": dict(self._progress.offences),
        }
        self._metrics.trained(line["epoch"], line["loss"])
        self._state.append_metrics(line)
        self._show(line, now, last=next_step == self._num_steps)
        self._losses.clear()
        self._last_time, self._last_step, self._last_bytes = now, next_step, sent

    def _show(self, line: dict[str, Any], now: float, *, last: bool) -> None:
        note = f"{line['steps_per_s']:.0f} steps/s"
        if line["loss"] is not None:
            note = f"loss {line['loss']:.4f}, {note}"
        if line["bytes_per_s"] is not None:
            note += f", {line['bytes_per_s'] / 1e6:.2f} MB/s"
        self._bar.update(self._task, completed=line["step"], note=note)
        if self._bar.disable and (last or now - self._logged_at >= LOG_INTERVAL_S):
            log.info("step %d of %d: %s", line["step"], self._num_steps, note)
            self._logged_at = now
