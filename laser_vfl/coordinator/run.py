"""What the coordinator remembers of a training run."""

from dataclasses import dataclass

from laser_vfl.coordinator.alignment import Results
from laser_vfl.coordinator.directives import View


@dataclass
class Run:
    """One training run: fixed members, fixed seed, fixed alignment."""

    id: str
    members: tuple[str, ...]
    seed: int
    alignments: Results
    view: View | None = None
