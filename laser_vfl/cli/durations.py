"""Times as people write them on a command line."""

import re
from datetime import timedelta

from laser_vfl.core.errors import ConfigError, quoted

LONGEST_S = 86_400.0


def parse_seconds(text: str, option: str) -> float:
    """Return the seconds in "200ms", "1.5s" or "2"."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|)", text.strip(), re.ASCII)
    seconds = float(found[1]) / (1e3 if found[2] == "ms" else 1) if found else 0.0
    if not 0 < seconds <= LONGEST_S:
        raise ConfigError(
            f"{option}: {quoted(text)} is no time to wait", hint="write it as 200ms or 1.5s"
        )
    return seconds


def parse_days(text: str, option: str) -> timedelta:
    """Return the time in "10d" or "10"."""
    found = re.fullmatch(r"([0-9]{1,5})d?", text.strip(), re.ASCII)
    if not found:
        raise ConfigError(f"{option}: {quoted(text)} is no number of days", hint="write it as 10d")
    return timedelta(days=int(found[1]))
