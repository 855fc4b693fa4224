"""All data sets by name, where their files are, and the one call that reads any of them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data.sets import credit, digits, hapt, icu, mimic4
from laser_vfl.data.sets.cifar import CIFAR10, CIFAR100
from laser_vfl.data.sets.dataset import DataSet
from laser_vfl.data.sets.file_tree import Tree, readable
from laser_vfl.data.sets.source import Source


@dataclass(frozen=True)
class Recipe:
    """How a data set is read, from official files or from a compact one."""

    source: Source
    from_official: Callable[[Tree], DataSet]
    from_compact: Callable[[Path], DataSet]


_FILES = {
    recipe.source.name: recipe
    for recipe in (
        *(Recipe(m.SOURCE, m.from_official, m.from_compact) for m in (hapt, credit, mimic4, icu)),
        *(Recipe(c.source, c.from_official, c.from_compact) for c in (CIFAR10, CIFAR100)),
    )
}
SOURCES = (*(recipe.source for recipe in _FILES.values()), digits.SOURCE)
SET_NAMES = tuple(source.name for source in SOURCES)


def source_of(name: str) -> Source:
    """Return what is known about a data set before it is read."""
    for source in SOURCES:
        if source.name == name:
            return source
    raise ConfigError(f'there is no data set "{name}"', hint=f"use one of {', '.join(SET_NAMES)}")


def load_set(name: str, root: Path | None = None) -> DataSet:
    """Read a data set; `root` is the directory with its files, found by itself if left out."""
    source = source_of(name)
    if source is digits.SOURCE:
        return digits.load()
    recipe = _FILES[name]
    directory = data_root(root)
    found = source.find(directory) if directory else None
    if found is None:
        raise _not_found(source, directory)
    with readable(found.path):
        if found.kind == "compact":
            source.check_compact(found.path)
            return recipe.from_compact(found.path)
        with source.open_official(found.path) as tree:
            return recipe.from_official(tree)


def _not_found(source: Source, directory: Path | None) -> DataError:
    compact = f" or the compact file {source.compact}" if source.compact else ""
    where = f" in {directory}" if directory else ""
    return DataError(
        f"the files of {source.name} were not found{where}",
        hint=f"get {source.markers[0]} and what belongs to it from {source.get_it},{compact}; "
        f"then {HOW_TO_POINT}",
    )


VARIABLE = "LASER_VFL_DATA"
USUAL_PLACE = Path("../shared/data")
HOW_TO_POINT = f"name their directory with --data or in {VARIABLE}"


def data_root(given: Path | None = None) -> Path | None:
    """Return the directory with the files, or None if none is named or found."""
    for path, said_by in ((given, "--data"), (_from_environment(), VARIABLE)):
        if path is None:
            continue
        if not path.is_dir():
            raise DataError(
                "there is no such directory",
                hint=f"correct {said_by}; docs/data.md says what belongs there",
                where=str(path),
            )
        return path
    return USUAL_PLACE if USUAL_PLACE.is_dir() else None


def _from_environment() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None
