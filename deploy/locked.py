"""The lock files of the image: which releases it installs, with the SHA-256 of each file."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LINE = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)"
    r"(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)  # (?P<groups>[a-z0-9-]+(?:, [a-z0-9-]+)*)"
)
EVERYWHERE = "dependencies"
"""The group of what the package itself needs; the others are its extras."""


@dataclass(frozen=True)
class Locked:
    """One release, the files of it that may be installed, and who needs it."""

    name: str
    version: str
    hashes: frozenset[str]
    groups: frozenset[str]

    @property
    def line(self) -> str:
        """Return what pip reads."""
        hashes = "".join(f" --hash=sha256:{digest}" for digest in sorted(self.hashes))
        return f"{self.name}=={self.version}{hashes}  # {', '.join(sorted(self.groups))}"


def read_lock(path: Path) -> list[Locked]:
    """Return what a lock file has; raises ValueError for a line that is not of its form."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"{path}:{number}: this is no release with the hashes of its files")
        hashes = re.findall("[0-9a-f]{64}", match["hashes"])
        groups = match["groups"].split(", ")
        found.append(Locked(match["name"], match["version"], frozenset(hashes), frozenset(groups)))
    return found


def needed_by(entries: Iterable[Locked], groups: Iterable[str]) -> list[Locked]:
    """Return the releases that some groups need."""
    wanted = set(groups)
    return [entry for entry in entries if entry.groups & wanted]


def normalised(name: str) -> str:
    """Return the one form of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()
