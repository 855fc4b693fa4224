"""Types of single configuration values: names, paths, columns, labels, devices and threads."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainValidator, ValidationInfo

from laser_vfl.config.section import problem
from laser_vfl.config.text import shown

DIRECTORY = "directory"
"""The key of the validation context that holds the directory of the file being read."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_RULE = "1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit"


def is_name(text: str) -> bool:
    """Whether a text could name a federation, a client or an application."""
    return _NAME.fullmatch(text) is not None


def _checked_name(value: Any) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    if isinstance(value, int | float):
        hint = f'put it in quotes, as in "{shown(value)}"'
    elif isinstance(value, str) and _NAME.fullmatch(value.lower()):
        hint = f"write it in lower case: {value.lower()}"
    else:
        hint = "write a name such as bank"
    raise problem(f"expected a name ({_RULE}), got {shown(value)}", hint)


Name = Annotated[str, BeforeValidator(_checked_name)]


def _resolved(value: Any, info: ValidationInfo) -> Path:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise problem(
            f"expected a path, got {shown(value)}",
            "write the path of a file or directory, from the directory of this file",
        )
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise problem(
            f"no home directory is known for {shown(value)}", "write the path without ~"
        ) from None
    directory: Path = (info.context or {}).get(DIRECTORY, Path())
    return directory / path


RelativePath = Annotated[Path, BeforeValidator(_resolved)]


def _checked_column(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | float):
        hint = f'put it in quotes, as in "{shown(value)}"'
    else:
        hint = "write the name as in the first line of the table"
    raise problem(f"expected the name of a column, got {shown(value)}", hint)


def _label_text(value: Any) -> str:
    if isinstance(value, str | int | float) and value != "":
        return value if isinstance(value, str) else shown(value)
    raise problem(
        f"expected one value of the label, got {shown(value)}", "write it as in the table"
    )


Column = Annotated[str, BeforeValidator(_checked_column)]
LabelText = Annotated[str, BeforeValidator(_label_text)]
"""A label as text: 1, 1.0 and true in YAML are "1", "1.0" and "true"."""


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
