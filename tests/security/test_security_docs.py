"""The page about security has every attack, as the table of the tests has it, and no other."""

import contextlib
import json
from pathlib import Path

import pytest
import serving_attacks
import test_members

from tests.support.attacks.attack_results import Results
from tests.support.attacks.attack_table import ATTACKS
from tests.support.attacks.write_table import BEGIN, END, PAGE, row

pytestmark = pytest.mark.core

ELSEWHERE = {
    "heartbeats without end",
    "streams without end",
    "coordinator lowers protection",
    "coordinator's terms are none",
    "coordinator publishes",
    "one run too many",
    "brings too many",
    "aligns and leaves",
    "address on the peers' machine",
    "secrets open to others",
    "a certificate about to end",
    "asks who is erased",
    "reads farewells",
    "random bytes",
    "made-up messages, member",
    "made-up messages, outsider",
    "another's call",
    "silent connections",
    "right token",
    "wrong token",
    "no token",
    "expired token",
    "hash of a token",
    "token in plaintext",
    "pickle as a model",
    "truncated model",
    "planted hubconf",
    "own model changed",
    "own model's options changed",
    "pickle as a checkpoint",
    "truncated checkpoint",
    "another user of the machine",
    "YAML bomb",
    "YAML tag",
    "CSV formula",
    "CSV with a huge cell",
    "replayed frames",
    "flood of large requests",
    "pretends to wait",
    "comes and goes",
    "a member comes back empty",
    "a member asks for runs without end",
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
    made = [*serving_attacks.DOING, *test_members.HABITS, *ELSEWHERE]
    assert sorted(made) == sorted(ATTACKS)
