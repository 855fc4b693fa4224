"""The changelog and the release of the code fit each other."""

import re
from pathlib import Path

from laser_vfl.core.release import __version__

CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"
HEADING = re.compile(r"^## \[(?P<name>[^]]+)\](?P<date> - \d{4}-\d{2}-\d{2})?$", re.MULTILINE)


def test_every_release_has_a_date_and_the_code_is_none_of_them_while_changes_are_unreleased():
    headings = [(found["name"], found["date"]) for found in HEADING.finditer(CHANGELOG.read_text())]
    assert len(headings) == len(re.findall(r"^## ", CHANGELOG.read_text(), re.MULTILINE))
    released = [name for name, date in headings if name != "Unreleased"]
    assert all(date for name, date in headings if name != "Unreleased")
    if headings[0][0] == "Unreleased":
        assert __version__ not in released
    else:
        assert __version__ == released[0]
