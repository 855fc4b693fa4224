"""One thing after another happens to a federation, drawn from a seed, until time is up."""

import random
import time
from dataclasses import dataclass

import psutil

from tests.support.trials.faults import ACTIONS, Fault
from tests.support.trials.trial import Trial

PAUSE_S = (0.5, 3.0)
MAX_IMPAIRED = 2
"""So many clients at a time are down, stopped or cut off, and the coordinator besides."""

LONGEST_S = 6.0
"""Nothing lasts longer than this."""

IMPAIRS = ("kill", "term", "stop", "cut", "black hole")
MENDS = {
    "kill": "start",
    "term": "start",
    "stop": "continue",
    "cut": "heal",
    "black hole": "heal",
}


@dataclass
class Impairment:
    """What is wrong with somebody, and when it is to end."""

    what: str
    until: float


class Soak:
    """Injects faults and mends what they did. One client is never restarted."""

    def __init__(self, trial: Trial, seed: int, steady: str) -> None:
        self.history: list[str] = []
        self._trial = trial
        self._rng = random.Random(seed)
        self._steady = steady
        self._impaired: dict[str, Impairment] = {}
        self._began = time.monotonic()

    def run(self, duration_s: float) -> None:
        """Let things happen for a time."""
        end = time.monotonic() + duration_s
        while (now := time.monotonic()) < end:
            for name, impairment in list(self._impaired.items()):
                if now >= impairment.until:
                    self._mend(name)
            self._impair(now)
            self._nobody_ended()
            time.sleep(self._rng.uniform(*PAUSE_S))

    def mend(self) -> None:
        """Undo all that is still wrong."""
        for name in list(self._impaired):
            self._mend(name)

    def memory(self) -> dict[int, float]:
        """How many megabytes each daemon that is up has, by process."""
        trial = self._trial
        processes = [trial.coordinator, *trial.clients.values()]
        return {p.pid: psutil.Process(p.pid).memory_info().rss / 1e6 for p in processes if p.alive}

    def _impair(self, now: float) -> None:
        num_clients = sum(name != "coordinator" for name in self._impaired)
        names = [n for n in self._trial.roster if n not in self._impaired]
        if num_clients >= MAX_IMPAIRED:
            names = []
        if "coordinator" not in self._impaired:
            names.append("coordinator")
        if not names:
            return
        name = self._rng.choice(names)
        choices = ["kill", "term"] if name == "coordinator" else list(IMPAIRS)
        if name == self._steady:
            choices = [what for what in choices if MENDS[what] != "start"]
        if name not in self._trial.proxies:
            choices = [what for what in choices if MENDS[what] != "heal"]
        what = self._rng.choice(choices)
        self._inject(what, name)
        self._impaired[name] = Impairment(what, now + self._rng.uniform(0.1, LONGEST_S))

    def _mend(self, name: str) -> None:
        impairment = self._impaired.pop(name)
        if impairment.what == "term":
            assert self._trial.process(name).wait_exit() == 0
        self._inject(MENDS[impairment.what], name)

    def _inject(self, what: str, name: str) -> None:
        self.history.append(f"{time.monotonic() - self._began:7.2f} s  {what} {name}")
        # Some hit nothing, such as a cut where there is no stream, so that no sign is wanted.
        ACTIONS[what](self._trial, Fault(what, name))

    def _nobody_ended(self) -> None:
        for name in (*self._trial.roster, "coordinator"):
            impairment = self._impaired.get(name)
            if impairment is None or MENDS[impairment.what] != "start":
                process = self._trial.process(name)
                assert process.alive, f"{name} has ended by itself:\n{process.stderr[-2000:]}"
