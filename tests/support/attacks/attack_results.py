"""What came of attacks, by name, and where it is kept between a run of the tests and the table."""

import fcntl
import json
from pathlib import Path

from tests.support.attacks.attack_table import ATTACKS

RESULTS = Path(__file__).parents[3] / ".security-results.json"


class Results:
    """Of each attack what came of it."""

    def __init__(self) -> None:
        self.by_name: dict[str, str] = {}

    def note(self, name: str, found: str, which: str = "") -> None:
        """Keep a result, and fail if it is not as expected; `which` says of what it is."""
        self.by_name = worst_of(self.by_name, {name: found})
        expected = ATTACKS[name].expected
        assert found == expected, f"{which or name}: {found!r}, and {expected!r} was expected"

    def keep(self, path: Path = RESULTS) -> None:
        """Add all to the file, which several workers may do at the same time."""
        with path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = json.loads(file.read() or "{}")
            file.truncate(0)
            kept = worst_of(known, self.by_name)
            file.write(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def worst_of(known: dict[str, str], found: dict[str, str]) -> dict[str, str]:
    """Put results together; one that is not as expected stays."""
    failed = {name: result for name, result in known.items() if not _is_expected(name, result)}
    return known | found | failed


def _is_expected(name: str, result: str) -> bool:
    return name in ATTACKS and result == ATTACKS[name].expected
