"""The arithmetic of an exchange: stacking what came in, and summing gradients in roster order."""

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

WIRE_DTYPES = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def rows_at(tensor_bd: torch.Tensor, positions: npt.NDArray[np.int64] | None) -> torch.Tensor:
    """Return the rows at these positions; None means all."""
    return tensor_bd if positions is None else tensor_bd[torch.from_numpy(positions)]


def spread(
    rows_rd: torch.Tensor, positions: npt.NDArray[np.int64] | None, num_rows: int
) -> torch.Tensor:
    """Return (num_rows, d) with these rows at their positions and zeros elsewhere."""
    if positions is None:
        return rows_rd
    blank = rows_rd.new_zeros((num_rows, rows_rd.shape[1]))
    return blank.index_copy(0, torch.from_numpy(positions).to(rows_rd.device), rows_rd)


def sum_in_order(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """Add tensors from left to right, so that the result does not depend on who was faster.

    The sum is contiguous whatever the parts are: some kernels round differently by memory layout.
    """
    iterator = iter(parts)
    total = next(iterator)
    for part in iterator:
        total = total + part
    return total.contiguous()


def crossing(tensor: torch.Tensor, wire_precision: str) -> torch.Tensor:
    """Return what a peer sees of a tensor; its gradient comes back through the same precision."""
    dtype = WIRE_DTYPES[wire_precision]
    if dtype == torch.float32:
        return tensor
    return cast(torch.Tensor, _Crossing.apply(tensor, dtype))  # type: ignore[no-untyped-call]


def fan_out(tensor: torch.Tensor, num: int) -> tuple[torch.Tensor, ...]:
    """Return `num` copies of a tensor whose gradients are added from the first to the last."""
    return cast(tuple[torch.Tensor, ...], _FanOut.apply(tensor, num))  # type: ignore[no-untyped-call]


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        ctx.dtype = dtype
        return tensor.to(dtype).to(tensor.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (grad,) = grads
        return grad.to(ctx.dtype).to(grad.dtype), None


class _FanOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, num: int) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.clone() for _ in range(num))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return sum_in_order(grads), None
