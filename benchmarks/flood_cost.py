"""What a member that floods the others costs them: their CPU time, with and without its flood.

The flood has the same cores as everybody else, so that times of a step say what it takes from them,
and not what it costs to refuse it. `beyond_steps` does: the share of a core that an honest client
spends beyond what its steps cost without a flood. The results are in docs/security.md.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.daemons.harness import Authority, Site
from tests.support.trials.trial import Trial

HABITS = ("none", "heartbeats", "streams")
HONEST = ("bank", "telco")
FIRST_STEP = 20
TRAINING = {"epochs": 60, "step_timeout_s": 60.0}


def main() -> None:
    """Measure each habit in turns, and print medians."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="how long each is looked at")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {habit: [] for habit in HABITS}
    with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory:
        authority = Authority(Path(directory))
        for number in range(options.repeats):
            for habit in HABITS:
                place = Path(directory) / f"{habit}-{number}"
                runs[habit].append(measured(Site(place, authority), habit, options.seconds))
    figures = {
        habit: {key: round(statistics.median(run[key] for run in found), 3) for key in found[0]}
        for habit, found in runs.items()
    }
    usual_ms = figures["none"]["step_cpu_ms"]
    for figure in figures.values():
        usual = figure["steps_per_s"] * usual_ms / 1e3
        figure["beyond_steps"] = round(figure["client_cpu"] - usual, 3)
    print(json.dumps({"seconds": options.seconds, "repeats": options.repeats, "habits": figures}))


def measured(site: Site, habit: str, seconds: float) -> dict[str, float]:
    """Train with a member of this habit, and look at the others for a while."""
    programs = {"shop": ("tests.support.attacks.flooding_member", habit)}
    with site, Trial(site, programs=programs, training=TRAINING) as trial:
        trial.wait_step("bank", FIRST_STEP)
        if habit != "none":
            trial.clients["shop"].wait_for("floods")
        honest = [psutil.Process(trial.clients[name].pid) for name in HONEST]
        coordinator = psutil.Process(trial.coordinator.pid)
        began, spent, told, steps = (
            time.monotonic(),
            _cpu(*honest),
            _cpu(coordinator),
            _steps(trial),
        )
        time.sleep(seconds)
        num_steps = _steps(trial) - steps
        took_s = time.monotonic() - began
        client_cpu_s = (_cpu(*honest) - spent) / len(HONEST)
        return {
            "steps_per_s": num_steps / took_s,
            "step_cpu_ms": client_cpu_s * 1e3 / max(num_steps, 1),
            "client_cpu": client_cpu_s / took_s,
            "coordinator_cpu": (_cpu(coordinator) - told) / took_s,
        }


def _cpu(*processes: psutil.Process) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _steps(trial: Trial) -> int:
    return len(trial.log(HONEST[0]))


if __name__ == "__main__":
    main()
