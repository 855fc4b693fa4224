"""FedSVD for two clients: the principal components of both blocks, from masked matrices alone.

Each party shows P X Q: P is orthogonal and known to both parties, Q is orthogonal and its own. The
right singular vectors of the masked matrices side by side turn them into P U S, which the parties
unmask. No entry of a block can be seen in what is shown, and nothing is lost but rounding.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt

from laser_vfl.core.alignment import ClientAlignment, Group, Rows
from laser_vfl.core.privacy.keystream import subkey
from laser_vfl.core.privacy.noise import gaussian
from laser_vfl.core.subsets import has, mask_of

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Chunk:
    """Some of the samples that two clients share, on their way to a third or back.

    `computer` puts the masked matrices together: the first client of the roster that is no party,
    or, of two clients, the first.
    """

    parties: tuple[int, int]
    computer: int
    start: int
    stop: int
    num_shared: int
    upward: bool

    @property
    def clients(self) -> int:
        """Everybody who is needed for it."""
        return mask_of([*self.parties, self.computer])

    @property
    def meeting(self) -> tuple[int, ...]:
        """The parties, before they send: then each has the other's key, and neither runs ahead."""
        return self.parties if self.upward else ()

    @property
    def senders(self) -> tuple[int, ...]:
        """The parties on the way up, the computing client on the way back."""
        return self.parties if self.upward else (self.computer,)

    @property
    def receivers(self) -> tuple[int, ...]:
        """The computing client on the way up, the parties on the way back."""
        return (self.computer,) if self.upward else self.parties

    @property
    def num_rows(self) -> int:
        """How many samples it has."""
        return self.stop - self.start

    @property
    def kind(self) -> Literal["representation", "gradient"]:
        """The frames that carry it."""
        return "representation" if self.upward else "gradient"

    @property
    def is_acknowledged(self) -> bool:
        """Whether senders wait: not for a party that computes, because they have met it before."""
        return not self.upward or self.computer not in self.parties

    @property
    def is_last(self) -> bool:
        """Whether the pair has all of its samples with it."""
        return self.stop == self.num_shared


def chunks_of(groups: Sequence[Group], num_clients: int, size: int) -> Iterator[Chunk]:
    """Yield all chunks of all pairs, those of a pair upward before those that come back."""
    for first, second in combinations(range(num_clients), 2):
        others = [k for k in range(num_clients) if k not in (first, second)]
        num_shared = num_shared_by(groups, first, second)
        for upward in (True, False):
            for start in range(0, num_shared, size):
                stop = min(start + size, num_shared)
                computer = others[0] if others else first
                yield Chunk((first, second), computer, start, stop, num_shared, upward)


def num_shared_by(groups: Sequence[Group], first: int, second: int) -> int:
    """Return how many samples two clients share."""
    both = mask_of([first, second])
    return sum(group.size for group in groups if not both & ~group.observed)


def shared_rows(alignment: ClientAlignment, peer: int) -> Rows:
    """Return a client's rows of the samples that it shares with a peer, in the order of both."""
    rows = [
        alignment.rows[g]
        for g, group in enumerate(alignment.groups)
        if g in alignment.rows and has(group.observed, peer)
    ]
    return np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)


def directions(inputs: npt.NDArray[np.float32], width: int) -> Matrix:
    """Return (features, width): an identity, or the principal directions where they are fewer."""
    num_features = inputs.shape[1]
    if num_features <= width:
        return np.eye(num_features, width)
    wide = inputs.astype(np.float64)
    return _principal(wide.T @ wide, width)


def masked(
    reduced: Matrix, chunk: Chunk, pair_key: bytes, own_key: bytes
) -> npt.NDArray[np.float32]:
    """Return what a party shows of a chunk, (rows, width)."""
    rotation = orthogonal(subkey(own_key, b"joint svd, own"), reduced.shape[1])
    return (_row_mask(chunk, pair_key) @ reduced @ rotation).astype(np.float32)


def joint_directions(masked_matrix: npt.NDArray[np.float32]) -> Matrix:
    """Return the leading right singular vectors of masked matrices side by side."""
    wide = masked_matrix.astype(np.float64)
    return _principal(wide.T @ wide, wide.shape[1] // 2)


def unmasked(rows: npt.NDArray[np.float32], chunk: Chunk, pair_key: bytes) -> Matrix:
    """Take the mask of the rows off what came back."""
    return _row_mask(chunk, pair_key).T @ rows.astype(np.float64)


def with_fixed_signs(components: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Turn every column so that its largest entry is positive; masks leave that open."""
    at = np.abs(components).argmax(axis=0)
    signs = np.sign(components[at, np.arange(components.shape[1])])
    return components * np.where(signs == 0, 1, signs).astype(np.float32)


def orthogonal(key: bytes, size: int) -> Matrix:
    """Return a uniformly random orthogonal matrix of a key, which is for one use."""
    q, r = np.linalg.qr(gaussian(key, (size, size)).astype(np.float64))
    return q * np.sign(np.diag(r))


def _row_mask(chunk: Chunk, pair_key: bytes) -> Matrix:
    which = b" ".join(b"%d" % n for n in (*chunk.parties, chunk.start, chunk.stop))
    return orthogonal(subkey(pair_key, b"joint svd, rows", which), chunk.num_rows)


def _principal(gram: Matrix, num: int) -> Matrix:
    _, vectors = np.linalg.eigh(gram)
    return np.ascontiguousarray(vectors[:, ::-1][:, :num])
