"""The options that the `experiment` commands share, and parsing what is written after them."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from laser_vfl.core.errors import ConfigError, quoted
from laser_vfl.experiments.grid.case import BETA, Changes, PMiss
from laser_vfl.experiments.grid.names import DATASETS, METHODS, known

MAX_SEEDS = 1000

Dataset = Annotated[str, typer.Option("--dataset", metavar="NAME,…", help="Data sets.")]
Methods = Annotated[
    str, typer.Option("--methods", metavar="NAME,…", help="Methods, or all of them.")
]
PTrain = Annotated[
    str,
    typer.Option(
        "--p-train", metavar="P,…", help="How likely a block is missing in training; or beta."
    ),
]
PTest = Annotated[
    str, typer.Option("--p-test", metavar="P,…", help="How likely a block is missing in testing.")
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=MAX_SEEDS, help="How many seeds.")]
SeedsOf = Annotated[
    str,
    typer.Option(
        "--seeds-of", metavar="METHOD=N,…", help="Fewer or more for some; 0 leaves a method out."
    ),
]
Epochs = Annotated[
    int | None, typer.Option("--epochs", min=1, help="In place of those of the settings.")
]
Sets = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as training.epochs=2."),
]
Clients = Annotated[str, typer.Option("--clients", metavar="K,…", help="How many clients.")]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Where results, tables and pictures go.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, max=256, help="Runs at a time; one for each core.")
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="oracle: in one process; stacked: faster, MLPs only; grpc: a real federation each.",
    ),
]
Data = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="Where the data sets' files are.")
]
Plot = Annotated[bool, typer.Option("--plot/--no-plot", help="Draw pictures, too.")]


def parse_datasets(text: str) -> tuple[str, ...]:
    """Return the names of data sets."""
    return known(_words(text, "--dataset"), DATASETS, "--dataset")


def parse_methods(text: str, every: tuple[str, ...] = tuple(METHODS)) -> tuple[str, ...]:
    """Return the names of methods, in the order of the paper's table; `all` is `every` method."""
    words = _words(text, "--methods")
    chosen = known([word for word in words if word != "all"], METHODS, "--methods")
    return tuple(m for m in METHODS if m in chosen or ("all" in words and m in every))


def parse_p(text: str, option: str) -> tuple[PMiss, ...]:
    """Return probabilities, each once."""
    found: dict[PMiss, None] = {}
    for word in _words(text, option):
        found[BETA if word == BETA else _probability(word, option)] = None
    return tuple(found)


def parse_counts(text: str, option: str, most: int) -> tuple[int, ...]:
    """Return numbers in rising order."""
    return tuple(sorted({_count(word, option, 1, most) for word in _words(text, option)}))


def parse_numbers_of(text: str, option: str, least: int, most: int) -> dict[str, int]:
    """Return a number for each method that is named, as in METHOD=3,METHOD=1."""
    example = f"{next(iter(METHODS))}=3"
    pairs = [_pair(word, option, example) for word in _words(text, option)] if text else []
    known([name for name, _ in pairs], METHODS, option)
    return {name: _count(number, option, least, most) for name, number in pairs}


def parse_changes(epochs: int | None, sets: list[str]) -> Changes:
    """Return changed settings by their dotted names."""
    changes: dict[str, Any] = {} if epochs is None else {"training.epochs": epochs}
    for text in sets:
        name, value = _pair(text, "--set", "training.epochs=2")
        if "." not in name or not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(
                f"--set: {quoted(name)} is no setting", hint="write it as training.epochs=2"
            )
        if name in changes:
            raise ConfigError(f"{name} is given twice", hint="give it once; --epochs sets it, too")
        try:
            changes[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            changes[name] = value
        if not isinstance(changes[name], str | int | float | bool | None):
            raise ConfigError(
                f"--set: {name} cannot be {quoted(value)}", hint="give a number, a word or a truth"
            )
    return tuple(sorted(changes.items()))


def _words(text: str, option: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ConfigError(f"{option}: nothing is named", hint="name one or more, with commas")
    return words


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"{option}: {quoted(text)} has no =", hint=f"write it as {example}")
    return name.strip(), value.strip()


def _count(text: str, option: str, least: int, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise ConfigError(
            f"{option}: {quoted(text)} is no number from {least} to {most}",
            hint="write one of these",
        )
    return int(text)


def _probability(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ConfigError(
            f"{option}: {quoted(text)} is no probability",
            hint="use numbers from 0 to 1, without 1, or beta",
        )
    return value
