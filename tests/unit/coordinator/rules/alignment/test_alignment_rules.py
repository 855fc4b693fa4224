"""An alignment at the coordinator, from its call to the rows, and what ends it before."""

import numpy as np
import pytest

from laser_vfl.coordinator.rules.alignment.alignment import Alignment, group_lists
from laser_vfl.coordinator.rules.directives import Call, Commitment, Gathering, RingMemberInfo
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.core.alignment_purpose import TABLES, AlignmentPurpose
from laser_vfl.core.errors import AlignmentOver, ContractError, DataError
from tests.support.fakes.simulated_federation import (
    PHASES,
    TIMEOUT_S,
    Play,
    brought_to,
    called,
    commitment,
    digests,
)


def test_all_who_are_prepared_are_called_in_roster_order():
    play = Play("a", "b", "c", is_obliging=False)
    for name in ("c", "a"):
        play.join(name, 1)
        assert play.call(name) is None
    play.join("b", 1)
    ring = tuple(RingMemberInfo(n, play.clients[n].incarnation, f"{n}:1") for n in ("a", "b", "c"))
    call = Call("run-1", AlignmentPurpose.RUN, "run-1", ring, 1)
    for name in ("a", "b", "c"):
        assert play.directive(name) == Gathering("", ("a", "b", "c"), True, call)
    assert play.events == [("aligning", "run-1", "run")]


def test_who_comes_after_the_call_is_not_called():
    play = called("a", "b", "late", without=["late"], start=StartRule(quorum=2, after_s=0))
    assert play.events == [("aligning", "run-1", "run, without late")]
    play.join("late", 1)
    assert play.directive("late") == Gathering("", ("a", "b"), True)
    for message in (play.commit, play.submit):
        with pytest.raises(ContractError, match="late was not called"):
            message("late")
    with pytest.raises(ContractError, match="late was not called"):
        play.outcome("late")
    with pytest.raises(ContractError, match="late was not called"):
        play.refuse("late", "a")
    play.disconnect("late")
    assert play.align("a", "b")
    assert play.federation.run.members == ("a", "b")


def test_commitments_are_told_when_all_have_committed_and_not_before():
    play = called("a", "b", "c")
    for name in ("c", "a"):
        play.commit(name)
        play.commit(name)  # A repeated message changes nothing.
        assert [play.call(n).commitments for n in ("a", "b", "c")] == [(), (), ()]
    assert play.directive("a").waiting_for == ("b",)
    play.commit("b")
    told = tuple(commitment(name, play.listed(name, "serve")) for name in ("a", "b", "c"))
    assert {play.call(name).commitments for name in ("a", "b", "c")} == {told}
    assert play.directive("a").waiting_for == ("a", "b", "c")
    play.submit("b")
    assert play.directive("a").waiting_for == ("a", "c")


def test_a_commitment_cannot_be_taken_back():
    play = called("a", "b")
    play.commit("a")
    with pytest.raises(ContractError, match="a has committed to another list already"):
        play.alignment("a").commit(commitment("a", digests(1, 2, 3)))
    play.commit("b")
    assert play.call("b").commitments[0] == commitment("a", digests(1, 2))
    play.submit("a", "b")
    assert play.group()


def test_a_commitment_is_a_sha256():
    play = called("a")
    with pytest.raises(ContractError, match="a SHA-256"):
        play.alignment("a").commit(Commitment("a", 1, b""))
    assert play.directive("a").waiting_for == ("a",)


def test_digests_are_not_committed_to():
    play = called("a", scheme="hmac")
    with pytest.raises(ContractError, match="not committed to"):
        play.commit("a")


def test_nothing_is_submitted_before_all_have_committed():
    play = called("a", "b")
    play.commit("a")
    for name in ("a", "b"):
        with pytest.raises(ContractError, match="not everybody has committed yet"):
            play.submit(name)
    play.commit("b")
    play.submit("a", "b")
    assert play.group()


@pytest.mark.parametrize("samples", [(), (1,), (1, 2, 3)])
def test_as_many_points_are_submitted_as_were_committed_to(samples):
    play = called("a", "b")
    play.commit("a", "b")
    with pytest.raises(ContractError, match=rf"a committed to 2 .* and submitted {len(samples)}"):
        play.alignment("a").submit("a", "serve", digests(*samples), places_of(samples))
    play.submit("b")
    assert play.directive("b").waiting_for == ("a",)
    play.submit("a")
    assert play.group()


@pytest.mark.parametrize(("scheme", "table"), [("ecdh", "train"), ("hmac", "serve")])
def test_a_list_that_is_not_to_be_sent_is_refused(scheme, table):
    play = called("a", scheme=scheme)
    if scheme == "ecdh":
        play.commit("a")
    with pytest.raises(ContractError, match=f"a list of the {table} table is not submitted now"):
        play.alignment("a").submit("a", table, digests(1))


def test_until_all_is_there_a_list_may_be_sent_again():
    play = called("a", "b")
    play.commit("a", "b")
    play.submit("a")
    play.submit("a")
    assert play.align("b")
    assert [(g.observed, g.size) for g in play.outcome("a")["train"].groups] == [(3, 2)]


def test_once_all_is_there_nothing_more_is_taken():
    play = called("a", "b")
    play.commit("a", "b")
    play.submit("a", "b")
    assert play.federation.alignments.take_lists()
    assert play.directive("a").waiting_for == ()
    with pytest.raises(ContractError, match="a has submitted its lists already"):
        play.submit("a")


@pytest.mark.parametrize("scheme", ["ecdh", "hmac"])
def test_lists_are_given_away_once_and_forgotten(scheme):
    play = called("a", "b", scheme=scheme)
    if scheme == "ecdh":
        play.commit("a", "b")
    play.submit("a")
    assert play.federation.alignments.take_lists() is None
    play.submit("b")
    alignment, lists = play.federation.alignments.take_lists()
    assert alignment is play.federation.alignments.current
    assert lists.keys() == {"a", "b"}
    assert all(tables.keys() == set(alignment.tables) for tables in lists.values())
    assert alignment._lists == {}
    assert play.federation.alignments.take_lists() is None
    play.wait(5, "a", "b")
    assert play.federation.alignments.take_lists() is None
    assert play.outcome("a") is None


def test_messages_about_another_alignment_are_too_late():
    play = called("a", "b")
    for id in ("run-0", ""):
        for message in (play.commit, play.submit):
            with pytest.raises(AlignmentOver):
                message("a", id=id or "none")
        with pytest.raises(AlignmentOver):
            play.outcome("a", id)
        with pytest.raises(AlignmentOver):
            play.federation.refuse(play.clients["a"], id, "b", "", play.now)
    assert play.align("a", "b")
    for message in (play.commit, play.submit):
        with pytest.raises(AlignmentOver):
            message("a", id="run-1")
    with pytest.raises(AlignmentOver):
        play.federation.refuse(play.clients["a"], "run-1", "b", "", play.now)
    assert play.outcome("a")["train"].num_rows == 2


def leave(play, name, how, *others):
    if how == "session":
        play.disconnect(name)
    elif how == "stopped":
        play.federation.gone(play.clients[name], "out of memory")
    elif how == "silence":
        play.rest(TIMEOUT_S + 1, *others)
    else:
        play.disconnect(name)
        play.register(name, nonce="again")


@pytest.mark.parametrize("how", ["session", "stopped", "silence", "restart"])
@pytest.mark.parametrize("phase", PHASES)
def test_without_a_start_rule_the_others_wait_for_the_one_that_is_lost(phase, how):
    play = called("a", "b", "c")
    taken = brought_to(phase, play, "a", "b", "c")
    leave(play, "b", how, "a", "c")
    assert play.event_names == ["aligning", "given up"]
    assert play.events[-1][1] == "run-1"
    assert play.events[-1][2].startswith("lost b: ")
    play.rest(60, "a", "c")
    assert play.directive("a") == play.directive("c") == Gathering("", ("b",), True)
    with pytest.raises(AlignmentOver):
        play.outcome("a")
    with pytest.raises(AlignmentOver):
        play.commit("a", id="run-1")
    if taken:  # The service has been grouping all the while.
        play.federation.grouped(taken[0], group_lists(("a", "b", "c"), taken[1]), play.now)
        assert play.federation.run is None
    play.join("b", 3, nonce="again")
    assert play.call("a").id == play.call("b").id == play.call("c").id == "run-2"
    assert play.align("a", "b", "c")
    assert play.federation.run.members == ("a", "b", "c")


@pytest.mark.parametrize("phase", PHASES)
def test_with_a_quorum_the_next_alignment_is_among_those_present(phase):
    play = called("a", "b", "c", start=StartRule(quorum=2, after_s=5))
    taken = brought_to(phase, play, "a", "b", "c")
    play.disconnect("b")
    play.rest(4.5, "a", "c")
    assert play.directive("a") == Gathering("", ("b",), True)
    play.rest(1, "a", "c")
    assert play.events == [
        ("aligning", "run-1", "run"),
        ("given up", "run-1", "lost b: its session ended"),
        ("aligning", "run-2", "run, without b"),
    ]
    assert [member.client for member in play.call("a").members] == ["a", "c"]
    assert play.call("a").commitments == ()
    if taken:
        play.federation.grouped(taken[0], group_lists(("a", "b", "c"), taken[1]), play.now)
        assert play.federation.run is None
    assert play.align("a", "c")
    assert play.federation.run.members == ("a", "c")
    assert [g.observed for g in play.outcome("c", "run-2")["train"].groups] == [0b101]


def test_lists_of_a_given_up_alignment_are_not_grouped():
    play = called("a", "b")
    play.commit("a", "b")
    play.submit("a", "b")
    play.disconnect("b")
    assert not play.group()


def test_a_session_that_is_replaced_in_an_alignment_changes_nothing():
    play = called("a", "b")
    play.commit("a", "b")
    old = play.sessions["b"]
    assert play.register("b") is play.clients["b"]
    play.connect("b")
    play.federation.disconnected(play.clients["b"], old, play.now)
    play.submit("a", "b")
    assert play.group()


@pytest.mark.parametrize("has_left", [True, False])
def test_who_moves_in_an_alignment_is_still_a_member_of_it(has_left):
    play = called("a", "b")
    play.commit("a", "b")
    play.register("b", address="b:2")
    if has_left:
        play.disconnect("b")
        assert play.event_names == ["aligning", "given up"]
        assert play.directive("a") == Gathering("", ("b",), True)
    else:
        play.submit("a", "b")
        assert play.group()
        assert play.federation.run.members == ("a", "b")


def test_a_result_is_taken_only_by_the_alignment_that_it_is_of():
    play = called("a")
    ring = (play.clients["a"].as_ring_member(),)
    stranger = Alignment("run-0", AlignmentPurpose.RUN, "ecdh", "run-0", ring)
    play.federation.grouped(stranger, {"a": {}}, play.now)
    assert play.federation.run is None
    assert play.event_names == ["aligning"]
    assert play.align("a")


def test_the_samples_of_those_who_are_absent_are_in_nobodys_groups():
    lists = {"c": {"train": digests(5, 6)}, "a": {"train": digests(6)}}
    results = group_lists(("a", "b", "c"), lists)
    assert results.keys() == {"a", "c"}
    groups = [(g.observed, g.size) for g in results["c"]["train"].groups]
    assert groups == [(0b100, 1), (0b101, 1)]
    assert {g: rows.tolist() for g, rows in results["c"]["train"].rows.items()} == {0: [0], 1: [1]}


@pytest.mark.parametrize("scheme", ["ecdh", "hmac"])
def test_a_run_begins_when_every_table_of_everybody_is_there(scheme):
    play = Play("a", "b", scheme=scheme, is_obliging=False)
    play.join("a", 1)
    play.join("b", 1)
    if scheme == "ecdh":
        play.commit("a", "b")
    play.submit("b")
    assert play.alignment("a").tables == TABLES[: 3 if scheme == "ecdh" else 2]
    for table in ("serve",) if scheme == "ecdh" else ("train", "test"):
        assert not play.group()
        assert play.federation.run is None
        assert play.directive("a").waiting_for == ("a",)
        places = play.places("a") if scheme == "ecdh" else None
        play.alignment("a").submit("a", table, play.listed("a", table), places)
    assert play.group()
    assert play.federation.run is not None


def places_of(samples):
    return np.zeros(len(samples), np.uint8)


@pytest.mark.parametrize(
    "places",
    [None, np.zeros(1, np.uint8), np.zeros(3, np.uint8), np.array([0, 3], np.uint8)],
    ids=["none", "few", "many", "no table"],
)
def test_with_points_comes_which_table_each_person_is_in(places):
    play = called("a", "b")
    play.commit("a", "b")
    with pytest.raises(ContractError, match="table"):
        play.alignment("a").submit("a", "serve", digests(1, 2), places)
    play.submit("a", "b")
    assert play.group()


def test_only_with_points_of_a_run_comes_which_table_each_person_is_in():
    play = called("a", scheme="hmac")
    with pytest.raises(ContractError, match="with the points of a run"):
        play.alignment("a").submit("a", "train", digests(1), places_of([1]))


def test_tables_are_grouped_by_what_each_client_says_of_its_points():
    play = called("a", "b")
    play.commit("a", "b")
    play.alignment("a").submit("a", "serve", digests(1, 2), np.array([0, 1], np.uint8))
    play.alignment("b").submit("b", "serve", digests(2, 1), np.array([1, 2], np.uint8))
    assert play.group()
    of_a, of_b = play.outcome("a"), play.outcome("b")
    found = {t: [(g.observed, g.size) for g in of_a[t].groups] for t in TABLES}
    assert found == {"train": [(1, 1)], "test": [(3, 1)], "serve": [(3, 2)]}
    assert {t: told.num_rows for t, told in of_b.items()} == {"train": 0, "test": 1, "serve": 2}
    assert of_b["test"].rows[0].tolist() == [0]
    assert of_b["serve"].rows[0].tolist() == [1, 0]


def test_a_sample_for_training_here_cannot_be_for_testing_there():
    play = Play("a", "b", scheme="hmac", is_obliging=False)
    play.join("a", 1, 2, 3)
    play.join("b", 1)
    play.submit("a")
    with pytest.raises(DataError, match="2 samples of the test table of b are in the train table"):
        play.alignment("b").submit("b", "test", digests(3, 9, 1))
    assert play.directive("a").waiting_for == ("b",)
    play.alignment("b").submit("b", "test", digests(9))
    play.alignment("b").submit("b", "train", digests(1))
    assert play.group()
    assert play.federation.run is not None


def test_all_lists_together_are_bounded_when_they_are_committed_to():
    """Two people in the tables of each client are two more whom it serves."""
    play = called("a", "b", "c", max_total_people=11)
    play.commit("a", "b")
    told = r"\(a 4, b 4, c 4\) than the 11 that max_total_people"
    with pytest.raises(ContractError, match=told):
        play.commit("c")
    play = called("a", "b", "c", max_total_people=12)
    play.commit("a", "b", "c")
    play.submit("a", "b", "c")
    assert play.group()


def test_all_lists_together_are_bounded_where_nobody_commits():
    play = called("a", "b", scheme="hmac", max_total_people=5)
    alignment = play.alignment("a")
    alignment.check_room("a", "train", 3)
    alignment.check_room("a", "train", 2)
    alignment.check_room("b", "train", 2)
    with pytest.raises(ContractError, match="max_total_people"):
        alignment.check_room("b", "train", 3)
