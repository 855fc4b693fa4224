"""Where each key of a configuration file was written, so that errors can point at it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from laser_vfl.config.text import one_line

KeyPath = tuple[str | int, ...]
"""The keys and indices from the top of a file to a value: ("model", "hidden", 1)."""


@dataclass(frozen=True)
class Position:
    """A place in a text file; both numbers start at 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"

    @property
    def order(self) -> tuple[int, int]:
        return (self.line, self.column)


START = Position(1, 1)


@dataclass(frozen=True)
class KeyPositions:
    """The positions of the keys of one file; they do not count when configurations are compared."""

    file: str = field(default="", compare=False)
    positions: Mapping[KeyPath, Position] = field(default_factory=dict, compare=False)

    def position(self, path: KeyPath) -> Position:
        """Return the position of a key, or of the nearest mapping around it if it was left out."""
        while path and path not in self.positions:
            path = path[:-1]
        return self.positions.get(path, START)

    def where(self, path: KeyPath) -> str:
        """Return the place as an error shows it: `bank.yaml:12:3: optimizer.lr`."""
        parts = [f"{self.file}:{self.position(path)}"] if self.file else []
        if path:
            parts.append(dotted(path))
        return ": ".join(parts)


def dotted(path: KeyPath) -> str:
    """Return a path as people write it: `model.hidden[1]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{one_line(part)}" if text else one_line(part)
    return text
