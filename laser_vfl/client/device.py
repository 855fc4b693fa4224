"""Where a client computes: which device, how many threads, and how tensors get there and back."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch

from laser_vfl.core.errors import ConfigError

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUP = Path("/proc/self/cgroup")


def pick_device(name: str, *, where: str = "device") -> torch.device:
    """Return the device that the configuration names; `auto` is cuda when there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (
        not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()
    ):
        raise ConfigError(
            f"{name} is not there: this machine has {torch.cuda.device_count()} CUDA devices",
            where=where,
            hint="use device: auto",
        )
    return device


def num_threads(
    wanted: int | Literal["auto"], own_address: str, addresses: Mapping[str, str], me: str
) -> int:
    """Return how many threads to compute with; `auto` is a fair share of this machine's cores.

    `addresses` are those of the clients that are known, by name. It may be empty, and may lack this
    client: `own_address` is what decides which of the others run on the same host.

    Threads that fight for cores are ruinous: on two cores a default-threaded client was seen ten
    times slower than a single-threaded one.
    """
    if wanted != "auto":
        return wanted
    host = _host(own_address)
    num_neighbours = sum(_host(addresses[name]) == host for name in addresses if name != me)
    return max(1, num_cores() // (1 + num_neighbours))


def num_cores() -> int:
    """Return how many cores this process may use: affinity and container limits count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, cores_allowed(_CGROUPS, _OWN_CGROUP) or cores or 1)


def cores_allowed(cgroups: Path, own: Path) -> int | None:
    """Return how many whole cores a container or a service may use; None if there is no limit.

    A limit may stand at this process's own group, which `own` names, or at any above it. With
    version 1 of cgroups, its two numbers are in files of their own.
    """
    first = [cgroups / "cpu" / f"cpu.cfs_{name}_us" for name in ("quota", "period")]
    places = [first, *([group / "cpu.max"] for group in _groups(cgroups, own))]
    limits = [limit for files in places if (limit := _limit(files)) is not None]
    return min(limits, default=None)


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _groups(cgroups: Path, own: Path) -> list[Path]:
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    names = [line.removeprefix("0::/") for line in lines if line.startswith("0::/")]
    group = cgroups / (names[0] if names and ".." not in names[0] else "")
    return [group, *(parent for parent in group.parents if parent.is_relative_to(cgroups))]


def _limit(files: Sequence[Path]) -> int | None:
    try:
        quota, period = " ".join(file.read_text() for file in files).split()
        return max(1, int(quota) // int(period)) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


class Host:
    """Moves batches between host memory and a device; through pinned buffers when it is a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_gpu = device.type == "cuda"

    def blank(self, *shape: int) -> torch.Tensor:
        """Return zeros in host memory to be filled and moved to the device."""
        return torch.zeros(shape, pin_memory=self._is_gpu)

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device."""
        if not self._is_gpu:
            return tensor
        pinned = tensor if tensor.is_pinned() else tensor.pin_memory()
        return pinned.to(self._device, non_blocking=True)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in host memory, complete."""
        if not self._is_gpu:
            return tensor
        pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        pinned.copy_(tensor, non_blocking=True)
        torch.cuda.synchronize(self._device)
        return pinned
