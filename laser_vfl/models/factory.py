"""A user's own model, `package.module:factory`, imported from the local environment only."""

import importlib
import inspect
import operator
import re
from collections.abc import Callable, Mapping

from torch import nn

from laser_vfl.core.errors import ConfigError


def call_factory(
    name: str, given: Mapping[str, object], options: Mapping[str, object]
) -> nn.Module:
    """Import the factory and call it with what the federation gives and the user's options."""
    factory = import_factory(name)
    for option in options:
        if option in given:
            raise ConfigError(
                f'"{option}" cannot be an option of {name}',
                hint="it is given by the federation and the data: take it out",
            )
    arguments = {**given, **options}
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        signature = None  # some built-in callables have none; then the call itself tells
    try:
        if signature is not None:
            signature.bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"{name} does not take what it is given: {error}",
            hint=f"it is called with {', '.join(arguments)}: change the factory or the options",
        ) from error
    try:
        module = factory(**arguments)
    except Exception as error:
        raise ConfigError(
            f"{name} failed: {_reason(error)}", hint="check its options and its code"
        ) from error
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"{name} returned {type(module).__name__}", hint="return a torch.nn.Module"
        )
    return module


def takes_argument(name: str, argument: str) -> bool:
    """Tell whether a factory has a parameter of this name; `**options` alone do not count."""
    try:
        return argument in inspect.signature(import_factory(name)).parameters
    except (TypeError, ValueError):
        return False


def import_factory(name: str) -> Callable[..., object]:
    path, _, attribute = name.partition(":")
    words = r"[^\W\d]\w*(\.[^\W\d]\w*)*"
    if not re.fullmatch(words, path) or not re.fullmatch(words, attribute):
        raise ConfigError(f'"{name}" names no factory', hint="write it as package.module:factory")
    try:
        module = importlib.import_module(path)
    except Exception as error:
        raise ConfigError(
            f'cannot import "{path}": {_reason(error)}',
            hint="install the package in this environment or put its folder in PYTHONPATH",
        ) from error
    try:
        factory = operator.attrgetter(attribute)(module)
    except AttributeError:
        raise ConfigError(
            f'"{path}" has no "{attribute}"', hint="check the name after the colon"
        ) from None
    if not callable(factory):
        raise ConfigError(
            f"{name} is a {type(factory).__name__} and cannot be called",
            hint="name a function or a class that gives a torch.nn.Module",
        )
    return factory  # type: ignore[no-any-return]


def _reason(error: Exception) -> str:
    first_line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
