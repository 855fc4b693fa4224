"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]
