"""The text of a configuration file, or why it cannot be read."""

from pathlib import Path

from laser_vfl.config.places import Position
from laser_vfl.config.text import one_line
from laser_vfl.core.errors import ConfigError

MAX_BYTES = 1 << 20


def read_text(path: Path) -> str:
    """The whole file as UTF-8; a `ConfigError` when that is not what it is."""
    name = one_line(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("no such file", hint="check the path", where=name) from None
    except IsADirectoryError:
        raise ConfigError(
            "is a directory", hint="name the YAML file inside it", where=name
        ) from None
    except PermissionError:
        raise ConfigError(
            "may not be read by this user", hint="change its permissions or the user", where=name
        ) from None
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise ConfigError(f"cannot be read: {reason}", hint="check the path", where=name) from None
    if len(content) > MAX_BYTES:
        raise ConfigError(
            "is larger than 1 MiB",
            hint="name a configuration file, not a table or a model",
            where=name,
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", errors="replace")
        raise ConfigError(
            "this is not UTF-8 text",
            hint="save the file with the encoding UTF-8",
            where=f"{name}:{position_in(before, len(before))}",
        ) from None


def position_in(text: str, index: int) -> Position:
    """The line and column of a character of `text`."""
    before = text[:index]
    return Position(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)
