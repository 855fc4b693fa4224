"""The page about security has every attack, as the table of the tests has it, and no other."""

import contextlib
import json
from pathlib import Path

import at_the_door
import test_members
from results import Results
from table import ATTACKS
from write_table import BEGIN, END, PAGE, row

ELSEWHERE = {
    "random bytes",
    "made-up messages, member",
    "made-up messages, outsider",
    "another's call",
    "silent connections",
    "right token",
    "wrong token",
    "no token",
    "token in plaintext",
    "pickle as a model",
    "truncated model",
    "pickle as a checkpoint",
    "truncated checkpoint",
    "YAML bomb",
    "YAML tag",
    "CSV formula",
    "CSV with a huge cell",
    "replayed frames",
}
"""Attacks that have a test of their own."""


def test_the_page_has_every_attack_with_what_is_expected() -> None:
    lines = PAGE.read_text().split(BEGIN)[1].split(END)[0].strip().splitlines()[2:]
    found = [line.replace("cmd\\|", "cmd|").rpartition(" | ")[0] for line in lines]
    assert found == [row(name, "").rpartition(" | ")[0] for name in ATTACKS]


def test_a_result_that_is_not_as_expected_stays(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for found in ("OK", ATTACKS["no token"].expected):
        worker = Results()
        with contextlib.suppress(AssertionError):
            worker.note("no token", found)
        worker.note("right token", ATTACKS["right token"].expected)
        worker.keep(path)
    assert json.loads(path.read_text()) == {"no token": "OK", "right token": "OK"}


def test_every_attack_is_made() -> None:
    made = [*at_the_door.DOING, *test_members.HABITS, *ELSEWHERE]
    assert sorted(made) == sorted(ATTACKS)
