"""A GPU where there is none: tensors that say they are on it, with their numbers in host memory.

As on a real one, an operation on tensors of both devices is refused, and nobody reads the numbers
of a tensor before it is copied back. Unlike torch's FakeTensorMode, it computes: a step can be
compared with the same step on the CPU, and what the codec sends is there.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

GPU = torch.device("cuda", 0)

_NAMES = (GPU.type, "meta")
"""What it is called: to torch's C++ its tensors are meta tensors, or autograd would look for the
streams of a real GPU."""

_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
"""The operations that may have tensors of both devices."""


class WrongDevice(RuntimeError):
    """An operation has tensors of two devices."""


class StillOnGpu(RuntimeError):
    """Somebody reads the numbers of a tensor that was not copied back."""


class OnGpu(torch.Tensor):
    """A tensor on the pretended GPU."""

    numbers: torch.Tensor

    @staticmethod
    def __new__(cls, numbers: torch.Tensor) -> "OnGpu":
        wrapper = torch.Tensor._make_wrapper_subclass(
            cls, numbers.shape, strides=numbers.stride(), dtype=numbers.dtype, device="meta"
        )
        wrapper.numbers = numbers
        return wrapper

    device = property(lambda self: GPU)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]

    def numpy(self, *, force: bool = False) -> Any:
        raise StillOnGpu("a tensor on a GPU has no numbers in host memory")

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})


class PretendedGpu(TorchDispatchMode):
    """While it is entered, what is moved to or made on the GPU is on the pretended one."""

    def __init__(self, monkeypatch) -> None:
        super().__init__()
        for name in ("_lazy_init", "synchronize"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: None)

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return _run(operation, args, kwargs or {})


def _run(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    is_any_on_gpu = any(isinstance(tensor, OnGpu) for tensor in tensors)
    # As with CUDA, a single number may come from the host.
    is_any_on_host = any(not isinstance(tensor, OnGpu) and tensor.dim() for tensor in tensors)
    if is_any_on_gpu and is_any_on_host and operation not in _COPIES:
        raise WrongDevice(f"{operation} has tensors of two devices")
    if operation is torch.ops.aten._pin_memory.default:  # all of host memory is as good
        return args[0]
    device = kwargs.pop("device", None)
    kwargs.pop("pin_memory", None)
    if device is not None:
        kwargs["device"] = torch.device("cpu")
    is_on_gpu = is_any_on_gpu if device is None else torch.device(device).type in _NAMES
    result = operation(*tree_map(_numbers, args), **tree_map(_numbers, kwargs))
    if operation._schema.is_mutable:
        return args[0] if isinstance(result, torch.Tensor) else None
    return tree_map(_on_gpu, result) if is_on_gpu else result


def _numbers(value: Any) -> Any:
    return value.numbers if isinstance(value, OnGpu) else value


def _on_gpu(value: Any) -> Any:
    return OnGpu(value) if isinstance(value, torch.Tensor) else value
