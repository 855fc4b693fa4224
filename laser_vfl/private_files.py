"""Files for nobody else: made private whatever the umask, and secrets checked before they are used.

A state directory says whom an organisation knows, and has keys. A key, a secret or a list of tokens
that others can read is no secret any more.
"""

import logging
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from laser_vfl.core.errors import LaserError

log = logging.getLogger(__name__)

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

_OTHERS = stat.S_IRWXG | stat.S_IRWXO

_TOO_MUCH = stat.S_IRWXO | stat.S_IWGRP
"""What nobody but its owner may do with a secret. A group may read it: that is how a daemon does
that runs as another user than the one who renews its key, and a pod of Kubernetes under fsGroup
(0440)."""


def make_private_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing; one that is there stays as it is."""
    try:
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
    except FileNotFoundError:
        make_private_directory(path.parent)
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)


def open_private(path: Path, mode: str) -> IO[Any]:
    """Open a file as `open` does; one that is made for it is private."""
    return open(path, mode, opener=_opener)


def keep_private(directory: Path) -> None:
    """Take from others what they may do in a directory and below it, and say so.

    What an earlier release has made by the umask of its time, or a backup has restored, is private
    afterwards. What belongs to another user stays as it is, with a warning.
    """
    try:
        before = directory.lstat()
    except OSError:
        return
    num_changed, foreign = 0, []
    shared = bool(before.st_mode & stat.S_ISVTX)  # such as /tmp: no directory of ours alone
    for path in () if shared else _tree(directory):
        with suppress(OSError):
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode) or not found.st_mode & _OTHERS:
                continue
            if found.st_uid == os.geteuid():
                path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
                num_changed += 1
            else:
                foreign.append(path)
    if num_changed:
        exposed = before.st_mode & _OTHERS
        log.log(
            logging.WARNING if exposed else logging.INFO,
            "%s: others had rights to %d of its files and directories; now its owner alone has "
            "(0700 and 0600)",
            directory,
            num_changed,
        )
    if shared or directory in foreign:
        log.warning(
            "%s is not this daemon's own, and others have rights to it: make a directory for it "
            "that belongs to its user, with `chmod 700`",
            directory,
        )
    elif foreign:
        log.warning(
            "%s and %d more belong to another user, and others have rights to them: give them to "
            "this daemon's user",
            foreign[0],
            len(foreign) - 1,
        )


def require_private(path: Path, error: type[LaserError]) -> None:
    """Raise an error of this kind if others may read or change a file that holds a secret."""
    found = path.stat()
    if found.st_mode & _TOO_MUCH:
        raise error(
            "can be read or changed by others than its owner",
            where=str(path),
            hint=f"chmod 600 {path}",
        )
    if not _is_trusted(found):
        raise error(
            "belongs to another user",
            where=str(path),
            hint="give it to the user whom this runs as, by chown",
        )


def _is_trusted(found: os.stat_result) -> bool:
    """Whether a file is ours, root's, or somebody's who lets a group of ours read it."""
    if os.geteuid() == 0 or found.st_uid in (0, os.geteuid()):
        return True
    by_group = bool(found.st_mode & stat.S_IRGRP)
    return by_group and found.st_gid in (os.getegid(), *os.getgroups())


def _opener(name: str, flags: int) -> int:
    return os.open(name, flags, FILE_MODE)


def _tree(directory: Path) -> Iterator[Path]:
    """Return a directory and all below it, each before what it contains; no link is followed."""
    yield directory
    for folder, directories, files in os.walk(directory):
        for name in (*directories, *files):
            yield Path(folder, name)
