"""Where the files of data sets are: an option, an environment variable, or the usual place."""

import os
from pathlib import Path

from laser_vfl.core.errors import DataError

VARIABLE = "LASER_VFL_DATA"
USUAL_PLACE = Path("../shared/data")
HOW_TO_POINT = f"name their directory with --data or in {VARIABLE}"


def data_root(given: Path | None = None) -> Path | None:
    """Return the directory with the files, or None when nobody has named one."""
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
