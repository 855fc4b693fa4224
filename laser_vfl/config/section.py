"""What every mapping of a configuration file has in common: no unknown keys, no change later."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr

from laser_vfl.config.places import Places

LogLevel = Literal["debug", "info", "warning", "error"]


class Section(BaseModel):
    """One mapping of a configuration file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ConfigFile(Section):
    """A whole configuration file, which remembers where its keys were written."""

    _places: Places = PrivateAttr(default_factory=Places)

    def where(self, key: str) -> str:
        """The place of a key for an error's `where`: "data.id" gives "bank.yaml:9:3: data.id".

        A key that was left out is placed at the mapping around it. A configuration that was built
        in Python has no file, and the key stands alone.
        """
        return self._places.where(tuple(key.split(".")))

    def remember(self, places: Places) -> None:
        """Keep the positions of the file this was read from."""
        self._places = places
