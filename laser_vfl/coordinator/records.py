"""What the coordinator remembers: one process of a client, and one training run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from laser_vfl.coordinator.directives import Finished, State, Stopped, View, ViewMember
from laser_vfl.core.alignment import ClientAlignment, align, num_common
from laser_vfl.core.errors import DataError

TABLES = ("train", "test")

Digests = npt.NDArray[np.uint8]


@dataclass
class Registration:
    """One process of a client, from its registration to its verdict or the end of its session."""

    client: str
    nonce: str
    incarnation: int
    address: str
    has_head: bool
    wants_run: bool
    seen_at: float
    session: int = 0
    in_session: bool = False
    state: State = State.JOINING
    run: str = ""
    next_step: int = 0
    num_steps: int = 0
    model_run: str = ""
    """The run of the model that it serves."""
    busy_since: float = 0.0
    """Since when it has been at one step without waiting for anybody."""
    tables: dict[str, Digests] = field(default_factory=dict)
    verdict: Stopped | Finished | None = None

    @property
    def available(self) -> bool:
        """Whether a run could count on this client."""
        return self.in_session and self.verdict is None

    @property
    def complete(self) -> bool:
        """Whether this client could start a run now."""
        return self.available and len(self.tables) == len(TABLES)

    def as_member(self) -> ViewMember:
        """Return this client as the others of a run that starts need to know it."""
        return ViewMember(self.client, self.incarnation, self.address, 0, self.has_head)

    def judge(self, verdict: Stopped | Finished) -> None:
        """Give the verdict; its tables are not needed any more."""
        self.verdict = verdict
        self.tables = {}


@dataclass
class Run:
    """One training run: fixed members, fixed seed, fixed alignment."""

    id: str
    members: tuple[str, ...]
    seed: int
    alignments: dict[str, dict[str, ClientAlignment]]
    view: View | None = None


def align_members(
    roster: Sequence[str], members: Mapping[str, Registration]
) -> dict[str, dict[str, ClientAlignment]]:
    """Return the alignment of each table for each member."""
    by_table = {
        table: align([members[name].tables[table] if name in members else None for name in roster])
        for table in TABLES
    }
    return {
        name: {table: by_table[table][k] for table in TABLES}
        for k, name in enumerate(roster)
        if name in members
    }


def check_apart(client: str, table: str, digests: Digests, others: Iterable[Registration]) -> None:
    """Refuse a table that shares people with the other table of another client."""
    other_table = "test" if table == "train" else "train"
    for other in others:
        theirs = other.tables.get(other_table)
        if other.client == client or theirs is None:
            continue
        if common := num_common(digests, theirs):
            raise DataError(
                f"{common} samples of the {table} table of {client} are in the {other_table} "
                f"table of {other.client}",
                hint="agree with that client on who is for training and who for testing",
            )
