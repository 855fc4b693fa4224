"""What the coordinator makes of an alignment has to fit what this client knows of it."""

from collections.abc import Mapping

import numpy as np

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import ContractError
from laser_vfl.core.subsets import has


def check_rows(alignment: ClientAlignment, num_rows: int, client: int, num_clients: int) -> None:
    """Refuse an outcome that does not place each of our rows once, in a group that is ours."""
    groups = alignment.groups
    if any(not group.observed or group.observed >> num_clients for group in groups):
        raise ContractError("the coordinator's groups are of clients that do not exist")
    ours = {g for g, group in enumerate(groups) if has(group.observed, client)}
    sizes = {g: len(rows) for g, rows in alignment.rows.items()}
    if sizes != {g: groups[g].size for g in ours if groups[g].size}:
        raise ContractError("the coordinator's groups do not have the sizes that it says")
    rows = np.concatenate([np.empty(0, np.int64), *alignment.rows.values()])
    if not np.array_equal(np.sort(rows), np.arange(num_rows)):
        raise ContractError("the coordinator does not place each of our rows once")


def check_members(held: Mapping[str, int], most: Mapping[str, int]) -> None:
    """Refuse groups that give somebody more people than it has committed to."""
    for name, num_people in held.items():
        if num_people > most.get(name, 0):
            raise ContractError(
                f"the coordinator says that {name} holds {num_people} people, "
                f"but it has committed to {most.get(name, 0)}"
            )
