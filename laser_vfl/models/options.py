"""The options of a built-in model, taken one by one and checked, so that a typo is an error."""

from collections.abc import Mapping, Sequence

from laser_vfl.core.errors import ConfigError


class Options:
    """Remembers what was asked for; whatever else was given is unknown."""

    def __init__(self, model: str, given: Mapping[str, object]) -> None:
        self._model = model
        self._given = given
        self._known: list[str] = []

    def integer(self, name: str, default: int, *, least: int = 1) -> int:
        self._known.append(name)
        value = self._given.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ConfigError(
                f"{self._model}: option {name}: expected an integer of at least {least}, "
                f"got {value!r}",
                hint=f"the default is {default}",
            )
        return value

    def sizes(self, name: str, default: Sequence[int]) -> list[int]:
        self._known.append(name)
        value = self._given.get(name, default)
        return check_sizes([value] if isinstance(value, int) else value, f"option {name}")

    def refuse_unknown(self) -> None:
        unknown = [name for name in self._given if name not in self._known]
        if unknown:
            known = ", ".join(self._known) or "none"
            raise ConfigError(
                f'{self._model} has no option "{unknown[0]}"', hint=f"its options: {known}"
            )


def check_sizes(value: object, name: str) -> list[int]:
    """The widths of hidden layers."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        sizes = [
            size
            for size in value
            if isinstance(size, int) and not isinstance(size, bool) and size > 0
        ]
        if len(sizes) == len(value):
            return sizes
    raise ConfigError(
        f"{name}: expected a list of integers of at least 1, got {value!r}",
        hint="for example [64, 64]",
    )
