"""All data sets by name, and the one call that reads any of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data.sets import credit, digits, hapt, icu, mimic4
from laser_vfl.data.sets.cifar import CIFAR10, CIFAR100
from laser_vfl.data.sets.dataset import DataSet
from laser_vfl.data.sets.root import HOW_TO_POINT, data_root
from laser_vfl.data.sets.source import Source
from laser_vfl.data.sets.trees import Tree, readable


@dataclass(frozen=True)
class Recipe:
    """How a data set is read from what can be found of it."""

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
