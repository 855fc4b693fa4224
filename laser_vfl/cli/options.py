"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


class Score(StrEnum):
    """By what subsets of blocks are compared."""

    ACCURACY = "accuracy"
    F1 = "f1"
    AUC = "auc"
    R2 = "r2"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]
