"""Rows as small integers with one scale each, rounded at random and repeatably.

A row's largest magnitude decides its scale. Each number becomes one of its two neighbouring
multiples of the scale, the nearer one more often, so that the mean is the number itself. Which
one is a function of step, sender and kind: a step that is redone sends the same, and the oracle can
repeat it. Nothing is carried over from one step to another.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.randomness import RandomStream, random_words

INT4: torch.dtype = torch.int4  # type: ignore[attr-defined]  # torch's stubs do not have it

LEVELS = {torch.int8: 127, INT4: 7}
"""Of each type, the largest integer; the smallest is its negative."""

Rows = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
ScaleBits = npt.NDArray[np.uint16]

_SMALLEST = np.float32(2.0**-100)
"""Rows below it travel as zeros, since their scale could not be told exactly."""


@dataclass(frozen=True)
class RoundedRows:
    """Rows as they travel: integers, and of each row's scale the upper half of a float32."""

    codes_rc: Codes
    scale_bits_r: ScaleBits

    def restored(self) -> Rows:
        """Return the rows as their receivers see them."""
        scale_r = (self.scale_bits_r.astype(np.uint32) << np.uint32(16)).view(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # a peer's; the bounds refuse them
            return self.codes_rc.astype(np.float32) * scale_r[:, np.newaxis]


@dataclass(frozen=True)
class RowRounding:
    """Draws the thresholds that decide how the rows of one step are rounded."""

    seed: int
    step: int

    def thresholds(
        self, sender: int, stream: RandomStream, num_rows: int, width: int
    ) -> torch.Tensor:
        """Return a number between 0 and 1 for each number of a sender's batch, (rows, width)."""
        num = num_rows * width
        words = random_words(
            -(-num // 4), seed=self.seed, stream=stream, counter=self.step, client=sender
        )
        parts = words.astype("<u8").view("<u2")[:num]
        uniform = (parts.astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-16)
        return torch.from_numpy(uniform.reshape(num_rows, width))


def rounded(rows_rc: Rows, dtype: torch.dtype, thresholds_rc: Rows | None = None) -> RoundedRows:
    """Return finite rows as integers of this type; to the nearest without thresholds."""
    levels = LEVELS[dtype]
    largest_r = np.abs(rows_rc).max(axis=1, initial=0.0).astype(np.float32)
    scale_r = largest_r / np.float32(levels)
    scale_r[scale_r < _SMALLEST] = 0.0
    # Only the upper half travels; rounded up, so that no number is beyond the largest integer.
    bits_r = (scale_r.view(np.uint32) + np.uint32(0xFFFF)) >> np.uint32(16)
    kept_r = (bits_r << np.uint32(16)).view(np.float32)
    divisor_r = np.where(kept_r == 0, np.float32(np.inf), kept_r)
    shifted_rc = rows_rc / divisor_r[:, np.newaxis]
    shifted_rc += np.float32(0.5) if thresholds_rc is None else thresholds_rc
    np.floor(shifted_rc, out=shifted_rc)
    np.clip(shifted_rc, -levels, levels, out=shifted_rc)
    return RoundedRows(shifted_rc.astype(np.int8), bits_r.astype(np.uint16))


def as_received(
    rows_rc: torch.Tensor, dtype: torch.dtype, thresholds_rc: torch.Tensor | None
) -> torch.Tensor:
    """Return rows as a peer sees them that were sent as integers of this type."""
    thresholds = None if thresholds_rc is None else thresholds_rc.numpy()
    return torch.from_numpy(rounded(rows_rc.detach().numpy(), dtype, thresholds).restored())
