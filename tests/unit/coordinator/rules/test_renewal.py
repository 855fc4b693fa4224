"""Registering again: after a verdict, before one, and while an old session is still open."""

import pytest

from laser_vfl.coordinator.rules.directives import Finished, Gathering, State, Training
from laser_vfl.core.errors import AlignmentOver, NameTaken, NotRegistered
from tests.support.fakes.simulated_federation import Play, finished, started


@pytest.fixture
def ended():
    """A federation whose run has just finished, before anybody renewed."""
    play = started("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    return play


def test_a_verdict_ends_a_registration_and_the_same_process_gets_a_fresh_one(ended):
    old = ended.clients["a"]
    assert old.verdict == Finished("run-1")
    new = ended.register("a", wants_run=False)
    assert new.incarnation > old.incarnation
    assert (new.verdict, new.report.prepared, new.in_session) == (None, False, False)
    assert ended.register("a", wants_run=False) is new
    assert not ended.federation.knows(old)
    with pytest.raises(NotRegistered):
        ended.federation.find("a", old.incarnation)
    assert ended.directive("b") == Finished("run-1")


def test_the_end_of_the_old_session_does_not_harm_the_new_registration(ended):
    old, old_session = ended.clients["a"], ended.sessions["a"]
    ended.join("a", 1)
    ended.federation.disconnected(old, old_session, ended.now)
    ended.federation.gone(old, "it was stopped")
    assert ended.federation.find("a", ended.clients["a"].incarnation) is ended.clients["a"]
    assert ended.clients["a"].complete
    assert ended.federation.addresses() == (("a", "a:1"), ("b", "b:1"))


def test_the_end_of_the_old_session_does_not_change_the_next_run(ended):
    old, old_session = dict(ended.clients), dict(ended.sessions)
    ended.federation.retrain(None)
    for name in ("a", "b"):
        ended.join(name, 1)
    ended.ready("a", "b", run="run-2")
    for name in ("a", "b"):
        ended.federation.disconnected(old[name], old_session[name], ended.now)
        ended.federation.gone(old[name], "it was stopped")
        assert ended.federation.directive(old[name]) == Finished("run-1")
    ended.wait(5, "a", "b", run="run-2")
    assert isinstance(ended.directive("b"), Training)
    assert (ended.view.generation, ended.stop) == (1, 0)


def test_an_old_registration_blames_nobody_of_the_next_run(ended):
    old = ended.clients["a"]
    ended.federation.retrain(None)
    for name in ("a", "b"):
        ended.join(name, 1)
    ended.ready("a", "b", run="run-2")
    ended.disconnect("b")
    ended.federation.gone(old, "no frame of b in 60 s")
    for run in ("run-1", "run-2"):
        with pytest.raises(AlignmentOver):
            ended.federation.outcome(old, run)
    assert isinstance(ended.directive("a"), Training)
    assert ended.stop == 0


def test_who_leaves_a_run_under_way_may_register_anew_and_come_back():
    play = started("a", "b")
    play.federation.gone(play.clients["b"], "the disk is full")
    old = play.clients["b"]
    play.come("b", wants_run=False)
    assert play.clients["b"].incarnation > old.incarnation
    assert play.directive("b") == Gathering("", (), False), "it does not say that it could"
    play.beat("b", run="run-1")
    assert play.directive("b") == play.directive("a")
    assert play.stop == 1


def test_another_process_is_refused_also_after_a_verdict(ended):
    with pytest.raises(NameTaken):
        ended.register("a", nonce="another")


def test_before_a_verdict_the_same_process_updates_what_it_said():
    play = Play("a", "b")
    a = play.come("a", has_head=True, wants_run=True)
    again = play.federation.register(
        "a", nonce="nonce-a", address="a:2", has_head=False, wants_run=False, now=play.now
    )
    assert again is a
    assert (a.address, a.has_head, a.wants_run) == ("a:2", False, False)
    assert play.federation.addresses() == (("a", "a:2"),)


def test_who_has_a_verdict_is_in_nobodys_way():
    play = started("a", "b", scheme="hmac")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.disconnect("b")
    play.federation.retrain(None)
    b = play.come("b", nonce="again")
    # Sample 1 was for training; whoever comes now may say otherwise.
    play.prepare("b", 3, test=[1])
    assert b.complete
    assert play.directive("b") == Gathering("", ("a",), True)
    play.join("a", 3)
    assert play.directive("a") == play.directive("b") == Gathering("run-2", (), True)


def test_addresses_are_those_in_session_in_roster_order():
    play = Play("a", "b", "c")
    play.come("c")
    play.come("a")
    play.register("b")
    assert play.federation.addresses() == (("a", "a:1"), ("c", "c:1"))
    play.disconnect("c")
    assert play.federation.addresses() == (("a", "a:1"),)


def test_idle_clients_stay_as_long_as_they_are_heard():
    play = finished("a", "b")
    play.wait(60, "a", state=State.JOINING, run="")
    assert play.federation.addresses() == (("a", "a:1"),)
    assert play.events[-1][0] == "finished"
