"""Where a data set comes from, and which of its files can be found in a directory."""

import fnmatch
import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from laser_vfl.core.errors import DataError
from laser_vfl.data.sets.dataset import Cut, DataSet, Metric, Samples, Task
from laser_vfl.data.sets.file_tree import Tree, open_tree


@dataclass(frozen=True)
class Found:
    """Files of a data set: the official ones, or one compact file."""

    path: Path
    kind: Literal["official", "compact"]


@dataclass(frozen=True)
class Source:
    """What is known about a data set before it is read."""

    name: str
    title: str
    task: Task
    metric: Metric
    num_classes: int
    get_it: str  # where the official files are, in words
    markers: tuple[str, ...] = ()  # files of the official layout, any of which tells it
    archives: tuple[str, ...] = ()  # patterns of names of archives with that layout
    archive_md5: dict[str, str] = field(default_factory=dict)  # as published, where it is known
    compact: str = ""  # the name of the compact file
    compact_sha256: str = ""

    def find(self, root: Path) -> Found | None:
        """Look in a directory and in the ones inside it; official files go first."""
        for folder in (root, *sorted(path for path in root.iterdir() if path.is_dir())):
            if any((folder / marker).is_file() for marker in self.markers):
                return Found(folder, "official")
        for path in sorted(root.iterdir()):
            if any(fnmatch.fnmatchcase(path.name.lower(), name) for name in self.archives):
                return Found(path, "official")
        path = root / self.compact
        return Found(path, "compact") if self.compact and path.is_file() else None

    def open_official(self, path: Path) -> Tree:
        """Open a folder or an archive of the official layout, checked where its sum is known."""
        if path.is_file() and path.name in self.archive_md5:
            _check_sum(path, "md5", self.archive_md5[path.name])
        return open_tree(path, self.markers)

    def check_compact(self, path: Path) -> None:
        """Refuse a compact file that is not the one whose checksum is known."""
        _check_sum(path, "sha256", self.compact_sha256)

    def data_set(self, train: Samples, test: Samples, cut: Cut, notes: tuple[str, ...]) -> DataSet:
        """Return the data set that was read from here."""
        return DataSet(self.name, self.task, self.metric, self.num_classes, train, test, notes, cut)


def _check_sum(path: Path, algorithm: str, expected: str) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, algorithm).hexdigest()
    if found != expected:
        raise DataError(
            f"its {algorithm.upper()} is {found[:12]}…, expected {expected[:12]}…",
            hint="the file is damaged or another one: get it again",
            where=str(path),
        )
