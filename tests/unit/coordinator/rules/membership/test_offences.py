"""Who goes when members accuse each other of having broken the contract, and who is believed."""

import json

import pytest

from laser_vfl.coordinator.api.client_reports import read_report
from laser_vfl.coordinator.rules.directives import LinkReport, State, Stopped
from laser_vfl.coordinator.rules.membership.offences import (
    MOST_EXCLUSIONS,
    Offences,
    accusations,
    ordinal,
)
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.fakes.simulated_federation import started

CUT_S = MembershipPolicy.cut_s


def judged(*accused, also_cut=()):
    """Who goes, of pairs that cannot reach each other: those who accuse, and others."""
    cuts = {frozenset(pair) for pair in (*accused, *also_cut)}
    return set(Offences().judge(cuts, {tuple(pair) for pair in accused}))


@pytest.mark.parametrize(
    ("accused", "out"),
    [
        (["ba"], "a"),
        (["ab"], "b"),
        (["ba", "ca"], "a"),
        (["ba", "ca", "da"], "a"),
        # Who accuses two that nobody else accuses goes instead of them.
        (["ab", "ac"], "a"),
        (["cb", "ca", "cd"], "c"),
        # One of the two is accused by somebody else too.
        (["ab", "cb", "ad"], "bd"),
        # Both accuse each other: nobody can tell.
        (["ab", "ba"], ""),
        # An accused who accuses its accusers.
        (["ba", "ca", "ab", "ac"], "a"),
        # An accusation by somebody who is accused does not count.
        (["ab", "bc"], "b"),
        (["ab", "bc", "ca"], ""),
    ],
)
def test_who_goes(accused, out):
    assert judged(*accused) == set(out)


def test_an_accusation_needs_a_cut():
    assert Offences().judge(set(), {("a", "b")}) == {}
    assert judged(also_cut=["ab"]) == set()


def test_who_accuses_one_after_the_other_alone_is_not_believed_the_second_time():
    offences, cuts = Offences(), {frozenset("ab"), frozenset("ac")}
    first, second = {("a", "b")}, {("a", "c")}
    assert set(offences.judge(cuts, first)) == {"b"}
    offences.excluded("b", "", first)
    assert set(offences.judge(cuts, first)) == {"b"}, "it is the same one"
    assert set(Offences.restore(offences.snapshot()).judge(cuts, second)) == {"a"}
    offences.excluded("b", "", {("c", "b")})
    assert set(offences.judge(cuts, second)) == {"c"}, "it was right about b"


def accuse(play, name, *others):
    """What a client says that refuses the streams of others."""
    links = play.links(name)
    for other in others:
        links[play.clients[other].incarnation] = LinkReport(False, CUT_S, offences=1)
    return {"links": links}


def left_out(play, accuser, accused, *others):
    """Let a member accuse another, everybody stop, and the next view come."""
    play.train(accuser, **accuse(play, accuser, accused))
    assert play.stop
    play.answer(**dict.fromkeys((accused, *others), 4))
    play.train(accuser, stopped=play.stop, next_step=4, **accuse(play, accuser, accused))


def test_the_later_in_the_roster_stays_when_the_earlier_broke_the_contract():
    play = started("a", "b", "c")
    left_out(play, "b", "a", "c")
    assert play.view.clients == ("b", "c")
    assert play.departures == [("a", "it broke the contract, says b")]
    assert play.directive("a").left_out == "it broke the contract, says b"


def test_without_an_accusation_the_roster_decides():
    play = started("a", "b", "c")
    links = {play.clients["a"].incarnation: LinkReport(False, CUT_S)}
    play.train("b", links=links)
    play.answer(a=4, b=4, c=4)
    assert play.view.clients == ("a", "c")


@pytest.mark.parametrize("keys", [{"quorum": 3}, {"on_lost": "wait"}])
def test_nobody_is_left_out_when_all_are_needed(keys):
    play = started("a", "b", "c", **keys)
    left_out(play, "b", "a", "c")
    assert play.view.clients == ("a", "b", "c")
    assert play.departures == []


def test_an_accuser_who_is_gone_is_not_heard():
    play = started("a", "b", "c")
    play.train("b", **accuse(play, "b", "a"))
    play.federation.gone(play.clients["b"], "")
    play.answer(a=4, c=4)
    assert play.view.clients == ("a", "c")


def three_times_left_out():
    """A run from which a has been left out as often as anybody may."""
    play = started("a", "b", "c")
    for number in range(1, MOST_EXCLUSIONS + 1):
        left_out(play, "b", "a", "c")
        assert len(play.departures) == number
        if number < MOST_EXCLUSIONS:
            assert not isinstance(play.directive("a"), Stopped)
            play.come_back("a")
            play.live(5, a=4, b=4, c=4)
            assert play.view.clients == ("a", "b", "c"), "it may come back"
    return play


def test_who_was_left_out_three_times_is_barred_and_told_so():
    play = three_times_left_out()
    told = play.directive("a")
    assert isinstance(told, Stopped)
    assert told.run == "run-1"
    assert told.reason.startswith("it broke the contract, says b")
    assert "barred from this run" in told.reason
    assert play.departures[-1] == ("a", told.reason)
    play.come_back("a")
    assert play.directive("a") == told
    assert play.federation.status(play.now).clients[0].activity == "barred"
    play.live(100, a=4, b=4, c=4)
    assert play.view.clients == ("b", "c")


def test_a_number_is_counted_as_in_english(monkeypatch):
    numbers = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 10: "10th", 11: "11th", 12: "12th"}
    numbers |= {13: "13th", 21: "21st", 22: "22nd", 33: "33rd", 101: "101st", 111: "111th"}
    assert {number: ordinal(number) for number in numbers} == numbers
    monkeypatch.setattr("laser_vfl.coordinator.rules.membership.offences.MOST_EXCLUSIONS", 2)
    offences = Offences()
    assert "time" not in offences.excluded("a", "it broke the contract", set())
    assert "that was the 2nd time" in offences.excluded("a", "it broke the contract", set())


def test_a_restart_of_the_coordinator_lifts_no_bar():
    play = three_times_left_out()
    told = play.directive("a")
    play.restart()
    assert play.directive("a") == told


def test_a_run_goes_on_and_ends_without_who_is_barred():
    play = three_times_left_out()
    play.train("b", "c")
    play.beat("b", "c", state=State.FINISHED, run="run-1")
    assert play.event_names[-1] == "finished"


def test_accusations_are_read_from_heartbeats():
    links = [pb.LinkReport(incarnation=7, up=False, for_s=1.0, offences=2)]
    heartbeat = pb.Heartbeat(state=pb.CLIENT_STATE_RUNNING, links=links, num_offences=3)
    report = read_report(heartbeat, ["a"])
    assert report.links == {7: LinkReport(False, 1.0, 2)}
    assert report.num_offences == 3


def test_accusations_are_of_members_as_they_are_now():
    play = started("a", "b")
    members = {name: play.clients[name] for name in "ab"}
    assert accusations(members) == set()
    play.train("a", **accuse(play, "a", "b"))
    assert accusations(members) == {("a", "b")}
    earlier = {play.clients["b"].incarnation + 100: LinkReport(False, CUT_S, offences=1)}
    play.train("a", links=earlier)
    assert accusations(members) == set()


def test_what_was_decided_survives_on_disk():
    offences = Offences()
    for _ in range(MOST_EXCLUSIONS):
        offences.excluded("a", "it broke the contract, says b", {("b", "a")})
    stored = json.loads(json.dumps(offences.snapshot()))
    restored = Offences.restore(stored)
    assert restored.barred == offences.barred
    assert restored.snapshot() == stored
