"""Which numbers may cross the wire: finite ones, in rows of a bounded norm."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.training.row_rounding import LEVELS

TOLERANCE = 1.01
"""By which factor a received row may be longer: it is rounded on its way, by 0.4 % at most.

Rows of integers are rounded further: each number by one step of the row's scale, at most.
"""

MAX_FLOAT32 = torch.finfo(torch.float32).max

Rows = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Bounds:
    """The bounds that all clients keep. A sender stops before it breaks them; receivers refuse.

    The norm is the Euclidean one, of each row.
    """

    max_norm: float
    dtype: torch.dtype
    """The type in which rows travel."""

    def unfit_to_send(self, rows_nd: Rows) -> Mask | None:
        """Tell which rows may not be sent, also because the type cannot hold them; None if all."""
        return _outside(rows_nd, self.max_norm, self._max_sent)

    def unfit_to_use(self, rows_nd: Rows) -> Mask | None:
        """Tell which of the rows that have come may not be used; None if all may."""
        further = np.sqrt(rows_nd.shape[1]) / LEVELS[self.dtype] if self.dtype in LEVELS else 0.0
        max_norm = self.max_norm * TOLERANCE * (1 + float(further))
        return _outside(rows_nd, max_norm, MAX_FLOAT32)

    @cached_property
    def _max_sent(self) -> float:
        """The largest number that the type can hold, or that of a row's scale."""
        return torch.finfo(torch.bfloat16 if self.dtype in LEVELS else self.dtype).max

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        return f"finite numbers for {kind}, in rows of a norm of at most {self.max_norm:g}"


def _outside(rows_nd: Rows, max_norm: float, max_value: float) -> Mask | None:
    # Nearly always all rows together are no longer than one of them may be. What is not finite
    # makes that sum so too, and it is then not below anything.
    if np.vdot(rows_nd, rows_nd) <= min(max_norm, max_value) ** 2:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        norms_n = np.linalg.norm(rows_nd.astype(np.float64), axis=1)
        fit_n = (norms_n <= max_norm) & (np.abs(rows_nd).max(axis=1) <= max_value)
    return None if fit_n.all() else ~fit_n
