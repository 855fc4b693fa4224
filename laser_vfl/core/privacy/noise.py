"""How representations leave a client: as rows of bounded norm, with noise of the client's own.

The noise is a function of a secret and of what is released. Releasing the same again, because a
step is redone or a run repeated, tells nothing new; anything else gets independent noise. If it
came from the federation's seed, everybody could subtract it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.privacy.keystream import keystream, subkey

Noise = npt.NDArray[np.float32]

_VALUES_AT_ONCE = 1 << 18


class Phase(Enum):
    """What representations are sent for; noise of different phases never meets."""

    TRAINING = b"noise, training"
    EVALUATION = b"noise, testing"
    SERVING = b"noise, serving"


@dataclass(frozen=True)
class Release:
    """How one client's representations leave it; the secret is known to nobody else."""

    clip: float
    noise: float = 0.0
    secret: bytes = b""

    def __post_init__(self) -> None:
        if self.noise and not self.secret:
            raise ValueError("noise without a secret can be subtracted")

    def clipped(self, rows_bd: torch.Tensor) -> torch.Tensor:
        """Scale rows that are longer than `clip` down to it; training goes through the scale."""
        norm_b1: torch.Tensor = torch.linalg.vector_norm(rows_bd, dim=1, keepdim=True)
        # A division of tensors, because that of a number is a product with the inverse, and not 1.
        return rows_bd * (torch.full_like(norm_b1, self.clip) / norm_b1.clamp(min=self.clip))

    def batch(self, rows_bd: torch.Tensor, phase: Phase, step: int) -> torch.Tensor:
        """Return a batch of clipped rows as all peers see it.

        The noise depends on the whole batch. If it depended on a row alone, two people with equal
        features would get equal noise, and everybody would see that they are alike. A step that is
        redone has the same batch.
        """
        if not self.noise:
            return rows_bd
        content = rows_bd.detach().contiguous().numpy()
        moment = f"step {step} {content.shape}".encode()
        key = subkey(self.secret, phase.value, moment, content.tobytes())
        return self._noisy(rows_bd, gaussian(key, content.shape))

    def people(self, rows_nd: torch.Tensor, names: Sequence[bytes]) -> torch.Tensor:
        """Return clipped rows as peers see them in serving, each of a person with a unique name.

        A repeated question gets the same noise, however many others are in it. So it must not
        depend on the row, which is rounded differently in forwards of different sizes. A name has
        to change whenever the row may change by more than that.
        """
        if not self.noise:
            return rows_nd
        keys = [subkey(self.secret, Phase.SERVING.value, name) for name in names]
        return self._noisy(rows_nd, gaussian_rows(keys, rows_nd.shape[1]))

    def _noisy(self, rows_nd: torch.Tensor, noise: Noise) -> torch.Tensor:
        return rows_nd + torch.from_numpy(noise).mul_(self.noise * self.clip)


def gaussian(key: bytes, shape: tuple[int, ...]) -> Noise:
    """Return standard normal values of a key, which is for one use."""
    return gaussian_rows([key], prod(shape)).reshape(shape)


def gaussian_rows(keys: Sequence[bytes], width: int) -> Noise:
    """Return a row of standard normal values for each key."""
    num_at_once = max(1, _VALUES_AT_ONCE // max(width, 1))
    rows = np.empty((len(keys), width), dtype=np.float32)
    for start in range(0, len(keys), num_at_once):
        rows[start : start + num_at_once] = _normals(keys[start : start + num_at_once], width)
    return rows


def _normals(keys: Sequence[bytes], width: int) -> npt.NDArray[np.float64]:
    """Turn uniform values into normal ones, two into two (Box and Muller)."""
    half = -(-width // 2)
    words = b"".join(keystream(key, 16 * half) for key in keys)
    uniform = (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64)
    uniform = ((uniform + 0.5) * 2.0**-53).reshape(len(keys), 2, half)
    radius = np.sqrt(-2.0 * np.log(uniform[:, 0]))
    angle = 2.0 * np.pi * uniform[:, 1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)[:, :width]
