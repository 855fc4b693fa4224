"""The organisations of made-up federations, and directories to put their files in."""

from pathlib import Path

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets.organisations import ORGANISATIONS

NAMES = ORGANISATIONS


def use_new_directory(directory: Path, option: str) -> None:
    """Make a directory, or take an empty one; anything else is refused."""
    hint = f"give {option} a new directory"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty", hint=hint)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be used ({error.strerror})", hint=hint) from None
