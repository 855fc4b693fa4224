"""Paths in a configuration file, which start at the directory of that file."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo

from laser_vfl.config.problems import problem
from laser_vfl.config.text import shown

DIRECTORY = "directory"
"""The key of the validation context that holds the directory of the file being read."""


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
