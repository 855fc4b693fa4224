"""How a row of a table stands in memory: its numbers, and one code for each category. No torch."""

from dataclasses import dataclass

MAX_CODES = 1 << 20
"""Codes of one category. A code shares a float32 row with numbers, which is exact up to 2**24."""


@dataclass(frozen=True)
class TableForm:
    """What the columns of an encoded table are, in the order of the table.

    A row is stored as one float32 vector: all numbers, then all codes. Numbers are scaled, and
    missing ones imputed; the code of a category is a whole number below its cardinality.
    """

    order: tuple[int, ...]
    """For each part of a row 0 if it is a number, else the cardinality of a category."""
    edges: tuple[tuple[float, ...], ...] = ()
    """For each number, quantiles of its scaled training values: rising, different, at least two.

    A number that did not vary has none. Without any, nothing is known of the training values.
    """

    @classmethod
    def of_numbers(cls, num_numbers: int, edges: tuple[tuple[float, ...], ...] = ()) -> "TableForm":
        """Return the form of rows that have numbers alone."""
        return cls((0,) * num_numbers, edges)

    @property
    def num_numbers(self) -> int:
        """How many numbers a row has."""
        return self.order.count(0)

    @property
    def cardinalities(self) -> tuple[int, ...]:
        """How many codes each category has."""
        return tuple(part for part in self.order if part)

    @property
    def width(self) -> int:
        """How many values a row has in memory."""
        return len(self.order)

    @property
    def flat_width(self) -> int:
        """How many values a row has with one column for each code of a category."""
        return sum(part or 1 for part in self.order)
