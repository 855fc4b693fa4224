"""The methods and data sets of the paper: what they are called on a command line and in print."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from laser_vfl.core.errors import ConfigError, quoted
from laser_vfl.experiments.case import Metric

METHODS: Final = {
    "local": "Local",
    "standard": "Standard VFL",
    "vfedtrans": "VFedTrans",
    "ensemble": "Ensemble",
    "combinatorial": "Combinatorial",
    "plug": "PlugVFL",
    "laser": "LASER-VFL",
    "laser-mixed": "LASER-VFL (ours, mixed)",
}
"""In the order of the paper's table; the last is LASER-VFL with the defaults of this product."""

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
