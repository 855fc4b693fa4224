"""What trains and scores one run: named as package.module:function, imported where it runs."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from laser_vfl.core.errors import ConfigError, quoted
from laser_vfl.experiments.grid.case import Case, Result

Engine = Callable[[Case, Path | None], list[Result]]
"""Takes a run and the directory of the data sets, or None where they are found by themselves."""

ENGINES: Final = {
    "oracle": "laser_vfl.experiments.engines.in_process_engine:run_case",
    "stacked": "laser_vfl.experiments.engines.in_process_engine:run_case_stacked",
    "grpc": "laser_vfl.experiments.engines.grpc_engine:run_case",
}
IN_ONE_PROCESS: Final = ("oracle", "stacked")


def check_engine(name: str) -> None:
    """Refuse a name that is no engine's."""
    if name not in ENGINES and not re.fullmatch(r"[^\W\d][\w.]*:[^\W\d]\w*", name):
        raise ConfigError(
            f"--engine: there is no {quoted(name)}",
            hint=f"use {', '.join(ENGINES)}, or your own as package.module:function",
        )
    if name not in ENGINES:
        engine_named(name)


def engine_named(name: str) -> Engine:
    """Import an engine."""
    path, _, function = ENGINES.get(name, name).partition(":")
    try:
        return cast(Engine, getattr(importlib.import_module(path), function))
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the engine {name} cannot be imported: {error}",
            hint="check the name, and that its folder is in PYTHONPATH",
        ) from error
