"""What the coordinator's audit log says of clients, alignments and runs."""

import json
from functools import partial

import pytest
from play import Play

from laser_vfl.coordinator.auditing import note_client, note_subject
from laser_vfl.wire.audit import Audit


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


def lines(path, event):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in found if line["event"] == event]


def audited(path, *roster, **keys):
    play = Play(*roster, **keys)
    audit = Audit(path)
    play.federation._on_client = partial(note_client, audit)
    play.note = partial(note_subject, audit)
    return play


def test_who_joins_and_leaves_is_noted(path):
    play = audited(path, "a", "b")
    play.federation.register(
        "a", nonce="n", address="a:1", has_head=True, wants_run=False, now=play.now, identity="x"
    )
    play.federation.register(
        "a", nonce="n", address="a:1", has_head=True, wants_run=True, now=play.now, identity="x"
    )
    [joined] = lines(path, "joined")
    assert (joined["client"], joined["identity"], joined["address"]) == ("a", "x", "a:1")
    play.federation.gone(play.federation.registry["a"], "it was stopped")
    [left] = lines(path, "left")
    assert (left["incarnation"], left["reason"]) == (joined["incarnation"], "it was stopped")
    assert left["identity"] == "x"


def test_an_alignment_and_its_run_are_noted_with_numbers_alone(path):
    play = audited(path, "a", "b")
    play.join("a", 1, 2, 3)
    play.join("b", 2, 4)
    [alignment] = lines(path, "alignment")
    assert alignment["outcome"] == "aligned"
    assert alignment["purpose"] == "run"
    assert alignment["members"] == ["a", "b"]
    assert {name: rows["train"] for name, rows in alignment["num_rows"].items()} == {"a": 3, "b": 2}
    play.ready("a", "b")
    [run] = lines(path, "run")
    assert (run["id"], run["state"], run["members"]) == (alignment["id"], "started", ["a", "b"])


def test_an_alignment_that_was_refused_is_noted_with_the_reason(path):
    play = audited(path, "a", "b", is_obliging=False)
    play.join("a", 1, 2)
    play.join("b", 2)
    play.refuse("a", "b", "it sends nonsense")
    [alignment] = lines(path, "alignment")
    assert alignment["outcome"] == "refused"
    assert alignment["num_rows"] == {}
    assert "it sends nonsense" in alignment["reason"]
