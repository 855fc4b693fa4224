"""What a configuration says of single columns, and the defaults of the rules for all others."""

from dataclasses import dataclass
from typing import Final, Literal

ColumnType = Literal["number", "boolean", "category", "datetime"]

MAX_VALUES: Final = 1000
"""How many values of a category are kept, unless `max_values` says otherwise."""
MAX_MAX_VALUES: Final = 100_000
MIN_ROWS: Final = 5
"""How many rows a value needs to be kept, where there are many values."""
FEW_VALUES: Final = 10
"""A category with no more values than this keeps them all."""


@dataclass(frozen=True)
class ColumnSpec:
    """How a column is to be read; None where the rules decide."""

    type: ColumnType | None = None
    max_values: int | None = None
    """Of a category."""
    scaling: str | None = None
    """Of a number: standard, quantile or none."""
    format: str | None = None
    """Of a date or time that is text, with the codes of strptime."""
    reference: str | None = None
    """Of a date or time: the ISO date from which its age is counted."""


NO_SPEC: Final = ColumnSpec()
