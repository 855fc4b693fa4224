"""All that a learner's training goes on from, as plain tensors, and how to go back to it."""

from collections.abc import Iterable, Mapping

import torch
from torch import nn

from laser_vfl.core.errors import DataError, quoted

_OPTIMIZER_KEYS = {"SGD": ("momentum_buffer",), "Adam": ("step", "exp_avg", "exp_avg_sq")}
_OPTIMIZER_KEYS["AdamW"] = _OPTIMIZER_KEYS["Adam"]

Tensors = Mapping[str, torch.Tensor]


class Buffers:
    """What forward passes change in a model, such as batch norm's statistics."""

    def __init__(self, models: nn.Module) -> None:
        self._modules = [module for module in models.modules() if module._buffers]
        self._before: list[tuple[nn.Module, str, torch.Tensor | None, torch.Tensor | None]] = []

    def remember(self) -> None:
        """Copy all buffers."""
        self._before = [
            (module, name, buffer, None if buffer is None else buffer.detach().clone())
            for module in self._modules
            for name, buffer in module._buffers.items()
        ]

    @torch.no_grad()
    def restore(self) -> None:
        """Put back what was remembered; a second time does nothing."""
        for module, name, buffer, before in self._before:
            if buffer is not None and before is not None:
                buffer.copy_(before)
            module._buffers[name] = buffer  # a forward pass may have put another tensor here
        self._before = []

    def forget(self) -> None:
        """Let go of what was remembered."""
        self._before = []


def read_state(
    models: nn.Module, optimizer: torch.optim.Optimizer, random: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return copies on the CPU: `models.<name>`, `optimizer.<parameter>.<key>` and `random`."""
    state = {f"models.{name}": _copied(value) for name, value in models.state_dict().items()}
    for index, parameter in enumerate(_parameters(optimizer)):
        for key, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                state[f"optimizer.{index}.{key}"] = _copied(value)
    state["random"] = random.clone()
    return state


def restore_state(models: nn.Module, optimizer: torch.optim.Optimizer, tensors: Tensors) -> None:
    """Set models and optimiser to a state that `read_state` gave; check that of randomness."""
    own = {f"models.{name}": value for name, value in models.state_dict().items()}
    own["random"] = torch.Generator().get_state()
    parameters = _parameters(optimizer)
    given = _by_parameter(tensors)
    _check_names(optimizer, len(parameters), given)
    _check_all_there(own, (name for name in tensors if not name.startswith("optimizer.")))
    for name, value in own.items():
        _check_form(name, tensors[name], value.shape, value.dtype)
    for index, entries in given.items():
        for key, value in entries.items():
            like = value.new_empty(()) if key == "step" else parameters[index]
            _check_form(f"optimizer.{index}.{key}", value, like.shape, like.dtype)
    try:
        torch.Generator().set_state(tensors["random"])
    except RuntimeError:
        raise _unfit("the state of randomness is not one of this release of torch") from None
    models.load_state_dict({name: tensors[f"models.{name}"] for name in models.state_dict()})
    optimizer.zero_grad(set_to_none=True)
    optimizer.state.clear()
    for index, entries in given.items():
        parameter = parameters[index]
        optimizer.state[parameter] = {
            # Torch counts steps on the CPU; all else lies in memory as its parameter does.
            key: value.clone() if key == "step" else torch.empty_like(parameter.data).copy_(value)
            for key, value in entries.items()
        }


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _copied(value: torch.Tensor | float | int) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else torch.int64)


def _by_parameter(tensors: Tensors) -> dict[int, dict[str, torch.Tensor]]:
    found: dict[int, dict[str, torch.Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            index, _, key = name.removeprefix("optimizer.").partition(".")
            if not (index.isascii() and index.isdecimal()):
                raise _unfit(f"{quoted(name)} is not known here")
            found.setdefault(int(index), {})[key] = value
    return found


def _check_names(
    optimizer: torch.optim.Optimizer, num_parameters: int, given: Mapping[int, Tensors]
) -> None:
    """A parameter that no gradient has reached yet has no entry; any other has them all."""
    keys = _OPTIMIZER_KEYS[type(optimizer).__name__]
    if keys == ("momentum_buffer",) and not optimizer.param_groups[0]["momentum"]:
        keys = ()
    for index, entries in given.items():
        expected = keys if index < num_parameters else ()
        prefix = f"optimizer.{index}."
        _check_all_there([prefix + key for key in expected], [prefix + key for key in entries])


def _check_all_there(expected: Iterable[str], given: Iterable[str]) -> None:
    expected, given = set(expected), set(given)
    for name in sorted(expected - given):
        raise _unfit(f"{quoted(name)} is missing")
    for name in sorted(given - expected):
        raise _unfit(f"{quoted(name)} is not known here")


def _check_form(name: str, value: torch.Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
    if value.shape != shape:
        raise _unfit(f"{quoted(name)} has the shape {tuple(value.shape)}, not {tuple(shape)}")
    if value.dtype != dtype:
        raise _unfit(f"{quoted(name)} holds {value.dtype}, not {dtype}")


def _unfit(why: str) -> DataError:
    return DataError(
        f"the stored state of training does not fit the models here: {why}",
        hint="use the models and the optimiser that it was written with",
    )
