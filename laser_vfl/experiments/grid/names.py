"""The methods and data sets of the paper: what they are called on a command line and in print."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from laser_vfl.core.errors import ConfigError, quoted
from laser_vfl.experiments.grid.case import Metric
from laser_vfl.methods.profiles import DEFAULT_METHOD, PROFILES, MethodProfile

PRODUCT_DEFAULTS: Final = f"{DEFAULT_METHOD}-mixed"
"""The default method with the defaults of this product, beside the one with those of the paper."""

METHODS: Final = {
    **{name: profile.title for name, profile in PROFILES.items()},
    PRODUCT_DEFAULTS: f"{PROFILES[DEFAULT_METHOD].title} (ours, mixed)",
}
"""In the order of the paper's table; the last is LASER-VFL with the defaults of this product."""


MAX_CLIENTS_OF: Final = ",".join(
    f"{name}={profile.most_scaled}" for name, profile in PROFILES.items() if profile.most_scaled
)
"""With how many clients at most some methods are timed, as on a command line."""


def profile_of(method: str) -> MethodProfile:
    """Return the facts about a method of an experiment."""
    return PROFILES[DEFAULT_METHOD if method == PRODUCT_DEFAULTS else method]


UNITS: Final[Mapping[Metric, str]] = {"accuracy": "accuracy, %", "f1": "F1 × 100"}


@dataclass(frozen=True)
class Title:
    """A data set in print."""

    name: str
    metric: Metric

    def __str__(self) -> str:
        return f"{self.name} ({UNITS[self.metric]})"


DATASETS: Final = {
    "hapt": Title("HAPT", "accuracy"),
    "credit": Title("Credit", "f1"),
    "mimic4": Title("MIMIC-IV", "f1"),
    "icu": Title("ICU (PhysioNet 2012)", "f1"),
    "cifar10": Title("CIFAR-10", "accuracy"),
    "cifar100": Title("CIFAR-100", "accuracy"),
    "digits": Title("Digits", "accuracy"),
}


def known(words: Iterable[str], names: Iterable[str], option: str) -> tuple[str, ...]:
    """Return the words, each once; an error for people when one is not among the names."""
    allowed = list(names)
    for word in words:
        if word not in allowed:
            close = get_close_matches(word, allowed, 1)
            hint = f"did you mean {close[0]}?" if close else f"use {', '.join(allowed)}"
            raise ConfigError(f"{option}: there is no {quoted(word)}", hint=hint)
    return tuple(dict.fromkeys(words))
