"""What every mapping of a configuration file has in common: no unknown keys, no later change."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr
from pydantic_core import PydanticCustomError

from laser_vfl.config.key_positions import KeyPositions

LogLevel = Literal["debug", "info", "warning", "error"]


class Section(BaseModel):
    """One mapping of a configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ConfigFile(Section):
    """A whole configuration file, which remembers where its keys were written."""

    _key_positions: KeyPositions = PrivateAttr(default_factory=KeyPositions)

    def where(self, key: str) -> str:
        """Return where a key is: "data.id" gives "bank.yaml:9:3: data.id".

        A key that was left out gets the position of the mapping around it. A configuration that was
        built in Python has no file: only the key is returned.
        """
        return self._key_positions.where(tuple(key.split(".")))

    def remember(self, positions: KeyPositions) -> None:
        """Keep the key positions of the file that this was read from."""
        self._key_positions = positions


PROBLEM_TYPE = "laser_vfl_problem"


def problem(message: str, hint: str, *, at: tuple[str | int, ...] = ()) -> PydanticCustomError:
    """Return an error to raise inside a pydantic validator, with a message for a person.

    `at` is the path from the value being validated to the key with the mistake, for checks of a
    whole mapping.
    """
    return PydanticCustomError(
        PROBLEM_TYPE, "{message}", {"message": message, "hint": hint, "at": at}
    )
