"""The people of a table in the order in which this client lists them to others.

The order is drawn from a key that nobody else has. It says nothing about the people or about the
order of the rows, and it is the same in every run, so that a run can be repeated.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.core.alignment import DIGEST_BYTES, ClientAlignment, listing_order
from laser_vfl.data import id_blinder, read_secret

Blind = Callable[[Sequence[str]], Digests]
"""Returns the digests of normalised ids under a client's key."""


@dataclass(frozen=True)
class Listing:
    """A list of distinct people, and at which row of the tables, put together, each stands."""

    ids: Sequence[str]
    digests: Digests
    rows: npt.NDArray[np.int64]
    places: npt.NDArray[np.uint8]
    """Which of the tables each is in, counted from 0; the first that has the person."""

    def __len__(self) -> int:
        return len(self.rows)

    def of_table(self, place: int, first_row: int) -> "Listing":
        """List those of one of the tables, in the same order; of ids and digests it has none."""
        chosen = self.places == place
        return Listing((), NOBODY.digests, self.rows[chosen] - first_row, self.places[chosen])

    def at_rows(self, alignment: ClientAlignment) -> ClientAlignment:
        """Turn places in this list into rows of the table."""
        return ClientAlignment(
            alignment.groups, {g: self.rows[places] for g, places in alignment.rows.items()}
        )


@dataclass(frozen=True)
class People:
    """Ids and their digests, as a table has them."""

    ids: Sequence[str]
    digests: Digests

    def part(self, chosen: npt.NDArray[np.bool_]) -> "People":
        """Return some of these people."""
        places = np.flatnonzero(chosen)
        return People([self.ids[place] for place in places.tolist()], self.digests[places])


@dataclass(frozen=True)
class Keys:
    """The keys under which this client finds people and orders lists of them."""

    digest: bytes
    """For digests of ids: shared where ids are compared by digests, else this client's own."""
    order: bytes
    """Never shared: it tells where in a list a person would stand."""


def read_keys(state: StateDirectory, secret_file: Path | None) -> Keys:
    """Return the keys of a client that may have a secret in common with others."""
    own_key = state.own_key()
    return Keys(digest=read_secret(secret_file) if secret_file else own_key, order=own_key)


def blinded_by(keys: Keys, federation: str) -> Blind:
    """Return how this client blinds normalised ids."""
    return id_blinder(keys.digest, federation)


NOBODY = People((), np.empty((0, DIGEST_BYTES), dtype=np.uint8))


def listing(*parts: People, order: bytes | None = None) -> Listing:
    """List the people of some tables; one who is in several comes once.

    The order is drawn from the key `order`; without one it is that of the digests.
    """
    digests = np.concatenate([NOBODY.digests, *(part.digests for part in parts)])
    sorted_rows = listing_order(digests)
    is_first = np.ones(len(digests), dtype=bool)
    is_first[1:] = (digests[sorted_rows[1:]] != digests[sorted_rows[:-1]]).any(axis=1)
    rows = sorted_rows[is_first]
    if order is not None:
        rows = rows[listing_order(shuffled(digests[rows], order))]
    ids = [id for part in parts for id in part.ids]
    ends = np.cumsum([len(part.ids) for part in parts])
    places = np.searchsorted(ends, rows, side="right").astype(np.uint8)
    return Listing([ids[row] for row in rows.tolist()], digests[rows], rows, places)


def shuffled(digests: Digests, key: bytes) -> Digests:
    """Return other digests of the same people, whose order only the key tells."""
    made = bytearray(DIGEST_BYTES * len(digests))
    for i, digest in enumerate(digests):
        new = hashlib.blake2b(digest, digest_size=DIGEST_BYTES, key=key).digest()
        made[DIGEST_BYTES * i : DIGEST_BYTES * (i + 1)] = new
    return np.frombuffer(made, dtype=np.uint8).reshape(len(digests), DIGEST_BYTES)
