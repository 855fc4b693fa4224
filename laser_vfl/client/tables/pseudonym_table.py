"""How people are named to peers after an alignment: by group and place, which says nothing of ids.

Where ids are compared as digests under a shared secret, the digests are names themselves.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from laser_vfl.client.tables.digest_index import DigestIndex, Digests, Positions
from laser_vfl.core.alignment import DIGEST_BYTES, Group
from laser_vfl.core.subsets import has

NAME = np.dtype([("group", "<u4"), ("place", "<u8")])
"""One name on the wire."""


class PseudonymTable:
    """The people of one alignment, as this client knows them.

    `digests` are under this client's own key, `points` under everybody's scalar, in the order of
    the list that it submitted; `places[g]` says where in that list the people of group `g` stand.
    """

    def __init__(
        self,
        id: str,
        run: str,
        members: Sequence[str],
        scalar: bytes,
        digests: Digests,
        points: Digests,
        groups: Sequence[Group],
        places: Mapping[int, Positions],
        domain: str = "",
    ) -> None:
        """`domain` is the run for which the scalar was drawn, if it is another one."""
        self.id = id
        self.run = run
        self.domain = domain or run
        self.members = tuple(members)
        self.scalar = scalar
        self.digests = digests
        self.points = points
        self.groups = tuple(groups)
        self._places = places
        self._index = DigestIndex(digests)
        self.names = np.zeros(len(digests), dtype=NAME)
        self._masks = np.zeros(len(digests), dtype=np.uint64)
        for group, positions in places.items():
            self.names["group"][positions] = group
            self.names["place"][positions] = np.arange(len(positions))
            self._masks[positions] = self.groups[group].observed

    def points_of(self, digests: Digests) -> Digests:
        """Return the points of people who have a name."""
        return self.points[self._index.find(digests)]

    def is_new(self, digests: Digests) -> npt.NDArray[np.bool_]:
        """Tell who of these people has no name yet."""
        return self._index.find(digests) < 0

    def without(self, gone: npt.NDArray[np.bool_]) -> "PseudonymTable":
        """Return the same names with nothing of these people: zeros hold their places."""
        if not gone.any():
            return self
        digests, points = self.digests.copy(), self.points.copy()
        digests[gone] = points[gone] = 0
        return PseudonymTable(
            self.id,
            self.run,
            self.members,
            self.scalar,
            digests,
            points,
            self.groups,
            self._places,
            self.domain,
        )

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        """Which places are not those of forgotten people."""
        return np.asarray(self.digests.any(axis=1))

    def names_for(self, digests: Digests, client: int) -> tuple[bytes, npt.NDArray[np.uint32]]:
        """Return the names of those whom a client of the roster holds too, and where they stand."""
        positions = self._index.find(digests)
        held = positions >= 0
        held[held] = (self._masks[positions[held]] >> np.uint64(client)) & np.uint64(1) == 1
        return self.names[positions[held]].tobytes(), np.flatnonzero(held).astype(np.uint32)

    def digests_of(self, names: bytes, client: int) -> Digests:
        """Return the digests of those whom a client of the roster names; zeros where it may not.

        A peer may name people that it holds itself, and nobody else.
        """
        wanted = np.frombuffer(names, dtype=NAME)
        digests = np.zeros((len(wanted), DIGEST_BYTES), dtype=np.uint8)
        for group in np.unique(wanted["group"]).tolist():
            positions = self._places.get(group)
            if positions is None or not has(self.groups[group].observed, client):
                continue
            chosen = np.flatnonzero(wanted["group"] == group)
            chosen = chosen[wanted["place"][chosen] < len(positions)]
            at = wanted["place"][chosen].astype(np.int64)
            digests[chosen] = self.digests[positions[at]]
        return digests


def places_of(names: npt.NDArray[np.void], num_groups: int) -> dict[int, Positions]:
    """Return, for each group that is named, where its people stand, in the order of the group."""
    order = np.lexsort((names["place"], names["group"]))
    bounds = np.searchsorted(names["group"][order], np.arange(num_groups + 1))
    return {
        group: order[bounds[group] : bounds[group + 1]]
        for group in range(num_groups)
        if bounds[group] < bounds[group + 1]
    }
