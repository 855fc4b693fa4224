"""An engine that trains nothing: scores follow from the case, and variables say how it behaves."""

import os
import time
import zlib
from pathlib import Path

from laser_vfl.core.errors import DataError
from laser_vfl.experiments.grid.case import Case, Result
from laser_vfl.experiments.grid.names import DATASETS

SKILL = {"laser": 0.9, "laser-mixed": 0.91, "plug": 0.85, "ensemble": 0.86, "combinatorial": 0.88}


def run_case(case: Case, data: Path | None = None) -> list[Result]:
    """Return made-up results, slowly or not at all if an environment variable asks for it."""
    if os.environ.get("STAND_IN_FAILS") == f"{case.method} {case.seed}":
        raise DataError("there is no such table", hint="look for it")
    if os.environ.get("STAND_IN_DIES") == f"{case.method} {case.seed}":
        os._exit(9)
    if log := os.environ.get("STAND_IN_LOG"):
        with Path(log).open("a") as file:
            file.write(f"{case.key()}\n")
    if os.environ.get("STAND_IN_HANGS_FROM", "99") <= str(case.seed):
        time.sleep(600)
    return [made_up(case, p_test) for p_test in case.p_test]


def made_up(case: Case, p_test: float | str) -> Result:
    """Return a result that depends on the case alone."""
    noise = zlib.crc32(f"{case.key()} {p_test}".encode()) / 2**32 * 0.03
    p_train, lost = (0.5 if p == "beta" else float(p) for p in (case.p_train, p_test))
    skill = SKILL.get(case.method, 0.75) + (0.02 if "mixed, per_sample" in case.variant else 0)
    score = skill - 0.04 * p_train - (0.9 if case.method == "standard" else 0.1) * lost + noise
    step_s = 2e-4 * (2**case.num_clients if case.method == "combinatorial" else case.num_clients)
    steps = 61 * (4 if "by_pattern" in case.variant else 1)
    return Result(
        dataset=case.dataset,
        method=case.method,
        variant=case.variant,
        p_train=case.p_train,
        p_test=p_test,
        seed=case.seed,
        num_clients=case.num_clients,
        metric=DATASETS[case.dataset].metric,
        score=max(score - 0.008 * case.num_clients, 0.05),
        by_client={"bank": 0.9, "shop": None},
        num_steps=steps,
        seconds=steps * step_s,
        seconds_per_step=step_s * (1 + noise),
        engine="oracle",
    )
