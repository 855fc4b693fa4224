"""Parsers of option values: times, rates, shares and names as people write them."""

import re
from collections.abc import Sequence
from datetime import timedelta

from laser_vfl.core.errors import ConfigError, quoted

_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_BYTES = {"B/s": 1.0, "kB/s": 1e3, "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9}
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_WAITS = {"": 1.0, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}

SLOWEST, FASTEST = 125.0, 125e9
"""A kilobit and a terabit a second, in bytes."""

LONGEST_WAIT_S = 86_400.0
LONGEST_LATENCY_S = 60.0


def parse_seconds(text: str, option: str) -> float:
    """Return the seconds in "200ms", "1.5s", "5min", "1h" or "2"."""
    found = re.fullmatch(_NUMBER + r"\s*(ms|s|min|h|)", text.strip(), re.ASCII)
    seconds = float(found[1]) * _WAITS[found[2]] if found else 0.0
    if not 0 < seconds <= LONGEST_WAIT_S:
        raise ConfigError(
            f"{option}: {quoted(text)} is no time to wait",
            hint="write it as 200ms, 1.5s, 5min or 2h, up to 24h; a number alone is seconds",
        )
    return seconds


def parse_days(text: str, option: str) -> timedelta:
    """Return the time in "10d" or "10"."""
    found = re.fullmatch(r"([0-9]{1,5})d?", text.strip(), re.ASCII)
    if not found:
        raise ConfigError(f"{option}: {quoted(text)} is no number of days", hint="write it as 10d")
    return timedelta(days=int(found[1]))


def parse_bandwidth(text: str, option: str) -> float:
    """Return bytes a second of "100mbit", "1gbit" or "12.5MB/s"."""
    found = re.fullmatch(_NUMBER + r"\s*([A-Za-z/]+)", text.strip(), re.ASCII)
    unit = found[2] if found else ""
    each = _BYTES.get(unit)
    if each is None:
        each = _BITS.get(unit.lower().removesuffix("/s"), 0.0) / 8
    rate = float(found[1]) * each if found else 0.0
    if not each:
        raise ConfigError(
            f"{option}: {quoted(text)} is no bandwidth",
            hint="write bits as 100mbit or 1gbit, or bytes as 12.5MB/s",
        )
    if not SLOWEST <= rate <= FASTEST:
        raise ConfigError(
            f"{option}: {quoted(text)} is out of range", hint="write one from 1kbit to 1000gbit"
        )
    return rate


def parse_latency(text: str, option: str) -> float:
    """Return the seconds in "20ms", "0.02s" or "500us"; a bare 0 needs no unit."""
    found = re.fullmatch(_NUMBER + r"\s*(us|ms|s|)", text.strip(), re.ASCII)
    if found and not found[2] and float(found[1]) == 0:
        return 0.0
    if not found or not found[2]:
        raise ConfigError(f"{option}: {quoted(text)} is no time", hint="write it as 20ms or 0.02s")
    seconds = float(found[1]) * _SECONDS[found[2]]
    if seconds > LONGEST_LATENCY_S:
        raise ConfigError(
            f"{option}: {quoted(text)} is too long", hint=f"write at most {LONGEST_LATENCY_S:g}s"
        )
    return seconds


def parse_shares(text: str, roster: Sequence[str], option: str) -> list[float]:
    """Return a probability for each client: of "0.3", or of "bank=0.1,shop=0.5", others 0."""
    if "=" not in text:
        return [_share(text, option)] * len(roster)
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        _check_name(name.strip(), roster, option)
        if name.strip() in shares:
            raise ConfigError(f"{option}: {quoted(name.strip())} is there twice")
        shares[name.strip()] = _share(value, option)
    return [shares.get(name, 0.0) for name in roster]


def parse_names(text: str, roster: Sequence[str], option: str) -> list[str]:
    """Return clients of the roster, in its order, of "bank,shop"."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        _check_name(name, roster, option)
    return [name for name in roster if name in names]


def _check_name(name: str, roster: Sequence[str], option: str) -> None:
    if name not in roster:
        raise ConfigError(
            f"{option}: {quoted(name)} is not in the roster", hint=f"it has {', '.join(roster)}"
        )


def _share(text: str, option: str) -> float:
    found = re.fullmatch(_NUMBER, text.strip(), re.ASCII)
    share = float(found[1]) if found else 1.0
    if not 0 <= share < 1:
        raise ConfigError(
            f"{option}: {quoted(text)} is no probability below 1",
            hint="write it as 0.3, or as bank=0.1,shop=0.5",
        )
    return share
