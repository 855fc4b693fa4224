"""People whom this client has to forget: keyed digests of their ids, in a file of its state."""

import fcntl
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from laser_vfl.atomic_files import Stamp, stamp
from laser_vfl.client.storage.state_files import writing
from laser_vfl.client.storage.tensor_file import read_arrays, write_arrays
from laser_vfl.client.tables.digest_index import DigestIndex, Digests
from laser_vfl.client.tables.table_listing import NOBODY, Keys, shuffled
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import DataError
from laser_vfl.data import blind_ids
from laser_vfl.private_files import open_private

FILE_NAME = "forgotten"

_HINT = "free some space or make the state directory writable, then forget them again"

Mask = npt.NDArray[np.bool_]


class ErasureList:
    """Tells who is forgotten. The command adds to the file, the daemon follows it.

    Each person is there under two digests, both under the key that nobody else has: one of the
    id, which holds whatever else is changed, and one of the digest by which tables and names know
    the person, because names have no ids.
    """

    def __init__(self, directory: Path, keys: Keys, federation: str) -> None:
        self.stamp: Stamp | None = None
        """Of the file as it was last read; None if there was none."""
        self._path = directory / FILE_NAME
        self._keys = keys
        self._federation = federation
        self._ids = self._digests = DigestIndex(NOBODY.digests)

    def __len__(self) -> int:
        return len(self._ids)

    def are(self, ids: Sequence[str]) -> Mask:
        """Tell who of these is forgotten; ids are normalised."""
        if not len(self):
            return np.zeros(len(ids), dtype=bool)
        return self._ids.find(self._of_ids(ids)) >= 0

    def have(self, digests: Digests) -> Mask:
        """Tell who is forgotten of those whom this client knows by these digests."""
        if not len(self):
            return np.zeros(len(digests), dtype=bool)
        return self._digests.find(shuffled(digests, self._keys.order)) >= 0

    def refresh(self) -> None:
        """Read the file if it has changed. If it cannot be used, what was read before holds."""
        found = stamp(self._path)
        if found == self.stamp:
            return
        ids, digests = self._read()
        self._ids, self._digests = DigestIndex(ids), DigestIndex(digests)
        self.stamp = found

    def add(self, ids: Sequence[str]) -> int:
        """Forget these people too; return how many of them were not forgotten before."""
        lock_path = self._path.with_name(".forgotten.lock")
        with writing(self._path, _HINT), open_private(lock_path, "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # so that of two commands neither is lost
            self.refresh()
            num_before = len(self)
            known = blind_ids(ids, self._keys.digest, self._federation)
            old_ids, old_digests = self._read()
            arrays = {
                "ids": _merged(old_ids, self._of_ids(ids)),
                "digests": _merged(old_digests, shuffled(known, self._keys.order)),
            }
            write_arrays(self._path, arrays, {"key": self._fingerprint()}, _HINT)
            self.refresh()
        return len(self) - num_before

    def _of_ids(self, ids: Sequence[str]) -> Digests:
        return shuffled(blind_ids(ids, self._keys.order, self._federation), self._keys.order)

    def _read(self) -> tuple[Digests, Digests]:
        if not self._path.exists():
            return NOBODY.digests, NOBODY.digests
        try:
            arrays, metadata = read_arrays(self._path)
            ids, digests = arrays["ids"], arrays["digests"]
        except OSError as error:
            raise self._unusable(f"cannot be read ({error.strerror})") from None
        except (ValueError, KeyError) as error:
            raise self._unusable(f"cannot be read ({type(error).__name__})") from None
        if {ids.shape[1:], digests.shape[1:]} != {(DIGEST_BYTES,)}:
            raise self._unusable("is not what was written")
        if metadata.get("key") != self._fingerprint():
            raise self._unusable("belongs to another own.key or federation")
        return ids, digests

    def _fingerprint(self) -> str:
        """Return a fingerprint of the key and the federation that the digests are made with."""
        name = f"forgotten in {self._federation}".encode()
        return hashlib.blake2b(name, digest_size=16, key=self._keys.order).hexdigest()

    def _unusable(self, what: str) -> DataError:
        return DataError(
            f"the list of people to forget {what}",
            where=str(self._path),
            hint="restore it, or remove it and forget them again",
        )


def _merged(old: Digests, new: Digests) -> Digests:
    """Return all of them in order, each once."""
    merged: Digests = np.unique(np.concatenate([old, new]), axis=0)
    return merged
