"""Where and how widely a client computes: devices and threads as a configuration names them."""

import re
from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from laser_vfl.config.problems import problem
from laser_vfl.config.text import shown

_DEVICE = re.compile(r"auto|cpu|cuda|cuda:(0|[1-9][0-9]{0,2})")
_MAX_THREADS = 4096


def _checked_device(value: Any) -> str:
    if isinstance(value, str) and _DEVICE.fullmatch(value):
        return value
    raise problem(
        f"expected auto, cpu, cuda or cuda:N, got {shown(value)}",
        "write auto to use a GPU when there is one",
    )


def _checked_threads(value: Any) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_THREADS:
        return value
    raise problem(
        f"expected auto or an integer from 1 to {_MAX_THREADS}, got {shown(value)}",
        "write auto for a fair share of the machine",
    )


Device = Annotated[str, PlainValidator(_checked_device)]
Threads = Annotated[int | Literal["auto"], PlainValidator(_checked_threads)]
