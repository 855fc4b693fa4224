"""What the coordinator's audit log says of clients, alignments and runs."""

import json

import pytest

from laser_vfl.coordinator.api.audit_events import AuditEvents
from laser_vfl.coordinator.rules.directives import LinkReport
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.observability.audit_log import FEW, AuditLog
from tests.support.fakes.simulated_federation import Play, started

CUT_S = MembershipPolicy.cut_s


@pytest.fixture
def path(tmp_path):
    return tmp_path / "audit.jsonl"


def lines(path, event):
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in found if line["event"] == event]


def audited(path, *roster, begin=Play, **keys):
    play = begin(*roster, **keys)
    play.observer = AuditEvents(AuditLog(path))
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


def test_who_was_excluded_for_an_offence_is_noted_with_the_accuser(path):
    play = audited(path, "a", "b", "c", begin=started)
    play.clients["a"].identity = "spiffe://churn/client/a"
    links = {
        **play.links("b"),
        play.clients["a"].incarnation: LinkReport(False, CUT_S, offences=1),
    }
    play.train("b", links=links)
    play.answer(a=4, c=4)
    play.train("b", stopped=play.stop, next_step=4, links=links)
    [excluded] = lines(path, "excluded")
    assert (excluded["client"], excluded["identity"]) == ("a", "spiffe://churn/client/a")
    assert (excluded["run"], excluded["generation"]) == ("run-1", 2)
    assert excluded["reason"] == "it broke the contract, says b"
    play.come_back("a")
    [left] = lines(path, "left")
    assert (left["client"], left["reason"]) == ("a", "it broke the contract, says b")


def test_who_is_lost_is_excluded_and_who_leaves_is_not(path):
    play = audited(path, "a", "b", "c", begin=started)
    play.train("a", leaving=True)
    play.train("a", leaving=True, stopped=play.stop)
    play.answer(b=1, c=1)
    assert play.departures == [("a", "it left")]
    assert lines(path, "excluded") == []
    play.disconnect("c")
    play.live(20, b=2)
    assert play.view.clients == ("b",)
    [excluded] = lines(path, "excluded")
    assert (excluded["client"], excluded["reason"]) == play.departures[-1]


def test_a_member_that_was_started_anew_and_is_in_the_next_view_is_not_excluded(path):
    play = audited(path, "a", "b", begin=started)
    play.disconnect("b")
    play.come_back("b")
    play.heed("b", 0)
    play.heed("a", 3)
    assert play.view.clients == ("a", "b")
    assert play.departures == [("b", "it was started anew")]
    assert [line["reason"] for line in lines(path, "left")] == ["it was started anew"]
    assert lines(path, "excluded") == []


def test_who_registers_without_end_does_not_fill_the_log(path):
    play = audited(path, "a", "b")
    for i in range(1000):
        play.register("a", nonce=f"nonce {i}")
    play.register("b")
    joined = lines(path, "joined")
    assert [line["client"] for line in joined] == ["a"] * FEW + ["b"]
    assert len(lines(path, "left")) == FEW


def test_who_refuses_without_end_does_not_fill_the_log(path):
    play = audited(path, "a", "b", is_obliging=False)
    play.idle("a", "b")
    for _ in range(1000):
        play.federation.alignments.call(
            AlignmentPurpose.DRY_RUN, list(play.clients.values()), play.now
        )
        play.refuse("a", "b", "no " * 100)
    assert len(lines(path, "alignment")) == FEW
