"""The arithmetic of an exchange: stacking what came in, and summing gradients in roster order."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.privacy.masking import dequantised, quantised
from laser_vfl.core.training.row_rounding import INT4, LEVELS, as_received

WIRE_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int8": torch.int8,
    "int4": INT4,
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


def columns_at(tensor_bd: torch.Tensor, columns: torch.Tensor | None) -> torch.Tensor:
    """Return some columns; None means all."""
    return tensor_bd if columns is None else tensor_bd[..., columns.to(tensor_bd.device)]


def columns_spread(rows_bc: torch.Tensor, columns: torch.Tensor | None, width: int) -> torch.Tensor:
    """Return (b, width) with these columns at their places and zeros elsewhere."""
    if columns is None:
        return rows_bc
    blank = rows_bc.new_zeros((len(rows_bc), width))
    return blank.index_copy(1, columns.to(rows_bc.device), rows_bc)


def sum_in_order(parts: Iterable[torch.Tensor]) -> torch.Tensor:
    """Add tensors from left to right, so that the result does not depend on who was faster.

    The sum is contiguous whatever the parts are: some kernels round differently by memory layout.
    """
    iterator = iter(parts)
    total = next(iterator)
    for part in iterator:
        total = total + part
    return total.contiguous()


@dataclass(frozen=True)
class Thresholds:
    """What decides how rows are rounded to integers, there and, their gradients, back."""

    there_rc: torch.Tensor | None = None
    back_rc: torch.Tensor | None = None


def crossing(
    tensor: torch.Tensor,
    wire_precision: str,
    *,
    masked_gradients: bool = False,
    thresholds: Thresholds | None = None,
) -> torch.Tensor:
    """Return what a peer sees of a tensor; its gradient comes back through the same precision.

    Masked ones come back in fixed point instead, which is `fan_out_summed`'s part.
    """
    dtype = WIRE_DTYPES[wire_precision]
    if dtype == torch.float32:
        return tensor
    back = torch.float32 if masked_gradients else dtype
    return cast(
        torch.Tensor,
        _Crossing.apply(tensor, dtype, back, thresholds or Thresholds()),  # type: ignore[no-untyped-call]
    )


def received(
    tensor: torch.Tensor, dtype: torch.dtype, thresholds_rc: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a tensor as its receivers see it when it travels in this type."""
    if dtype in LEVELS:
        return as_received(tensor, dtype, thresholds_rc)
    return tensor.to(dtype).to(tensor.dtype)


def fan_out(tensor: torch.Tensor, num: int) -> tuple[torch.Tensor, ...]:
    """Return `num` copies of a tensor whose gradients are added from the first to the last."""
    return cast(tuple[torch.Tensor, ...], _FanOut.apply(tensor, num))  # type: ignore[no-untyped-call]


def fan_out_summed(
    tensor: torch.Tensor, num_peers: int, *, has_own: bool
) -> tuple[torch.Tensor, ...]:
    """Return copies of a tensor: the own head's, if there is one, then a copy for each peer.

    The gradients of the peers' copies are added in fixed point, as masked ones are.
    """
    return cast(
        tuple[torch.Tensor, ...],
        _FanOutSummed.apply(tensor, num_peers, has_own),  # type: ignore[no-untyped-call]
    )


def backward_from(tensor: torch.Tensor, gradient: torch.Tensor) -> None:
    """Go backward from a tensor whose gradient is known.

    This is what `torch.autograd.backward` does with a gradient, but that imports sympy on its first
    use, which takes half a second and 50 MB; from a number without one it does not.
    """
    torch.autograd.backward(_Known.apply(tensor, gradient))  # type: ignore[no-untyped-call]


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        ctx.gradient = gradient
        return tensor.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.gradient, None


class _Crossing(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        dtype: torch.dtype,
        back: torch.dtype,
        thresholds: Thresholds,
    ) -> torch.Tensor:
        ctx.back, ctx.thresholds_rc = back, thresholds.back_rc
        return received(tensor, dtype, thresholds.there_rc)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (grad,) = grads
        return received(grad, ctx.back, ctx.thresholds_rc), None, None, None


class _FanOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, num: int) -> tuple[torch.Tensor, ...]:
        return tuple(tensor.clone() for _ in range(num))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return sum_in_order(grads), None


class _FanOutSummed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, num_peers: int, has_own: bool
    ) -> tuple[torch.Tensor, ...]:
        ctx.has_own = has_own
        return tuple(tensor.clone() for _ in range(num_peers + has_own))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        parts = [grads[0]] if ctx.has_own else []
        if peers := grads[ctx.has_own :]:
            parts.append(dequantised(sum_in_order(map(quantised, peers))))
        return sum_in_order(parts), None, None
