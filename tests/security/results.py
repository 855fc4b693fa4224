"""What came of attacks, by name, and where it is kept between a run of the tests and the table."""

from pathlib import Path

from table import ATTACKS

RESULTS = Path(__file__).parents[2] / ".security-results.json"


class Results:
    """Of each attack what came of it."""

    def __init__(self) -> None:
        self.by_name: dict[str, str] = {}

    def note(self, name: str, found: str) -> None:
        """Keep a result, and fail if it is not as expected."""
        self.by_name[name] = found
        expected = ATTACKS[name].expected
        assert found == expected, f"{found!r}, and {expected!r} was expected"
