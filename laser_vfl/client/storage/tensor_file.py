"""Tensors in the safetensors format, in parts that are written as they lie in memory.

The library's own writer copies everything while no other thread can run: 0.7 s for 200 MB.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from laser_vfl.atomic_files import Part
from laser_vfl.client.storage.state_files import DEFAULT_HINT, replace, writing
from laser_vfl.core.errors import DataError
from laser_vfl.private_files import make_private_directory

_ALIGNMENT = 8
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


Arrays = dict[str, npt.NDArray[Any]]


def write_arrays(
    path: Path, arrays: Arrays, metadata: dict[str, str], hint: str = DEFAULT_HINT
) -> None:
    """Write arrays to a private file, in a directory that is made if need be."""
    with writing(path, hint):
        make_private_directory(path.parent)
    replace(path, save(arrays, metadata), hint=hint)


def read_arrays(path: Path) -> tuple[Arrays, dict[str, str]]:
    """Return the arrays of a file and its metadata; raises OSError, or ValueError if damaged."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(type(error).__name__) from None


def tensor_parts(tensors: Mapping[str, torch.Tensor]) -> list[Part]:
    """Return the parts of a file: its head, then the memory of each tensor, which is on the CPU."""
    # The widest first, as the library does, so that every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    entries = {}
    end = 0
    for name, tensor in ordered:
        if tensor.dtype not in _NAMES:
            raise DataError(f"{name} holds {tensor.dtype}, which cannot be written")
        start, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    head = np.array([len(text)], dtype="<u8").tobytes() + text
    return [head, *(_memory(tensor) for _, tensor in ordered)]


def _memory(tensor: torch.Tensor) -> Part:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
