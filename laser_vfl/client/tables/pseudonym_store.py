"""Pseudonym tables on disk: one beside each model of a run that was aligned privately."""

import json
import logging
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from laser_vfl.client.storage.state_directory import StateDirectory, unusable
from laser_vfl.client.storage.tensor_file import read_arrays, write_arrays
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.client.tables.pseudonym_table import NAME, PseudonymTable, places_of
from laser_vfl.core.alignment import Group
from laser_vfl.core.errors import DataError
from laser_vfl.data import clamped, u_coordinates

log = logging.getLogger(__name__)

FILE_NAME = "naming.safetensors"

X25519 = "x25519"
"""What a file says of its points and scalar; one of release 0.1.0 has those of ed25519."""

AreGone = Callable[[Digests], npt.NDArray[np.bool_]]
"""Tells which of some digests are those of people to forget."""


class PseudonymStore:
    """Reads and writes the pseudonyms of each run. The files have a scalar, and are private."""

    def __init__(self, state: StateDirectory) -> None:
        self._state = state

    def write(self, pseudonyms: PseudonymTable) -> None:
        """Write the pseudonyms of a run, in place of older ones."""
        arrays = {
            "digests": pseudonyms.digests,
            "points": pseudonyms.points,
            "group": np.ascontiguousarray(pseudonyms.names["group"]),
            "place": np.ascontiguousarray(pseudonyms.names["place"]),
            "sizes": np.array([group.size for group in pseudonyms.groups], dtype=np.uint64),
            "masks": np.array([group.observed for group in pseudonyms.groups], dtype=np.uint64),
            "scalar": np.frombuffer(pseudonyms.scalar, dtype=np.uint8),
        }
        metadata = {
            "id": pseudonyms.id,
            "run": pseudonyms.run,
            "members": json.dumps(pseudonyms.members),
            "points": X25519,
            "domain": pseudonyms.domain,
        }
        write_arrays(self._state.model_directory(pseudonyms.run) / FILE_NAME, arrays, metadata)

    def read(self, run: str) -> PseudonymTable | None:
        """Return the pseudonyms of a run; None if its people are known to peers by digests."""
        path = self._state.model_directory(run) / FILE_NAME
        if not path.is_file():
            return None
        try:
            arrays, metadata = read_arrays(path)
            groups = [
                Group(int(mask), int(size))
                for mask, size in zip(arrays["masks"], arrays["sizes"], strict=True)
            ]
            names = np.zeros(len(arrays["group"]), dtype=NAME)
            names["group"], names["place"] = arrays["group"], arrays["place"]
            num = len(names)
            shapes = {name: arrays[name].shape for name in ("digests", "points", "scalar")}
            if shapes != {"digests": (num, 32), "points": (num, 32), "scalar": (32,)}:
                raise ValueError("its parts do not fit")
            if num and int(names["group"].max()) >= len(groups):
                raise ValueError("it has people of no group")
            if metadata["run"] != run:  # it is where they are written to
                raise ValueError("it is of another run")
            scalar, points = arrays["scalar"].tobytes(), arrays["points"]
            if metadata.get("points") != X25519:
                scalar, points = clamped(scalar), _converted(points)
            return PseudonymTable(
                metadata["id"],
                metadata["run"],
                json.loads(metadata["members"]),
                scalar,
                arrays["digests"],
                points,
                groups,
                places_of(names, len(groups)),
                metadata.get("domain", ""),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            raise unusable(path, f"{type(error).__name__}") from None

    def purge(self, run: str, are_gone: AreGone) -> PseudonymTable | None:
        """Return the pseudonyms of a run without people to forget; rewrite them if one was left."""
        pseudonyms = self.read(run)
        if pseudonyms is not None and (gone := are_gone(pseudonyms.digests)).any():
            pseudonyms = pseudonyms.without(gone)
            self.write(pseudonyms)
        return pseudonyms

    def purge_all(self, are_gone: AreGone) -> None:
        """Rewrite the pseudonyms of all runs that have people to forget."""
        for run in self._state.model_runs():
            try:
                self.purge(run, are_gone)
            except DataError as error:
                log.warning("nobody can be removed from it: %s", error)


def _converted(points: Digests) -> Digests:
    """Return points of ed25519 as those of X25519; zeros hold the places of forgotten people."""
    converted, known = points.copy(), points.any(axis=1)
    found = u_coordinates(points[known].tobytes())
    converted[known] = np.frombuffer(found, dtype=np.uint8).reshape(-1, points.shape[1])
    return converted
