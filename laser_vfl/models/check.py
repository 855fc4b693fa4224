"""Checks a model on two rows before training: it has to take the block and return the width."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from laser_vfl.core.errors import ConfigError, MismatchError
from laser_vfl.core.training.layer_randomness import borrowed_generator


def check_representation(
    module: nn.Module, input_shape: tuple[int, ...], representation_dim: int
) -> None:
    """Refuse a model that does not turn a row of the block into one representation."""
    output = _try(module, input_shape, f"a block of shape {input_shape}")
    if not isinstance(output, Tensor):
        raise ConfigError(
            f"the representation model returns {type(output).__name__}", hint="return one tensor"
        )
    if output.shape != (2, representation_dim):
        raise MismatchError(
            f"the representation model gives {_each_row(output)}, "
            f"the federation's representation_dim is {representation_dim}",
            hint=f"give its last layer {representation_dim} outputs",
        )


def check_fusion(module: nn.Module, representation_dim: int, num_outputs: int) -> None:
    """Refuse a head that does not turn a representation into the outputs of its task."""
    output = _try(module, (representation_dim,), f"representations of width {representation_dim}")
    if not isinstance(output, Tensor) or output.shape != (2, num_outputs):
        found = _each_row(output) if isinstance(output, Tensor) else type(output).__name__
        raise ConfigError(
            f"the fusion model gives {found}, the label needs {num_outputs} outputs",
            hint=f"give its last layer {num_outputs} outputs",
        )


def check_rows_apart(module: nn.Module) -> None:
    """Refuse a model in which one person's features change other people's representations.

    Then noise on each row is not enough: the whole batch tells of every person in it.
    """
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            raise ConfigError(
                f"the representation model has batch norm ({type(part).__name__}), which lets one "
                "person's features change every row of a batch, so nobody could say what noise is "
                "worth",
                hint="remove noise, or use a model without batch norm: with layer or group norm, "
                "say",
            )


def _try(module: nn.Module, shape: tuple[int, ...], what: str) -> object:
    parameter = next(module.parameters(), torch.empty(0))
    rows = torch.zeros((2, *shape), device=parameter.device, dtype=parameter.dtype)
    with _undisturbed(module):
        try:
            output: object = module(rows)
        except Exception as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise ConfigError(
                f"the model does not accept {what}: {reason}",
                hint="choose a model that fits the data",
            ) from error
    return output


@contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluate a model, and then restore its modes, its buffers and the random state."""
    modes = [(part, part.training) for part in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers() if not is_lazy(buffer)]
    module.eval()
    try:
        with torch.no_grad(), borrowed_generator():
            yield
    finally:
        for part, training in modes:
            part.training = training
        for buffer, before in buffers:
            with torch.no_grad():
                buffer.copy_(before)


def _each_row(output: Tensor) -> str:
    if output.ndim == 2 and len(output) == 2:
        return f"rows of width {output.shape[1]}"
    return f"the shape {tuple(output.shape)} for two rows"
