"""When a run's models go live: as soon as no organisation holds them back."""

import json

import pytest

from laser_vfl.coordinator.rules.directives import Publication, State
from laser_vfl.coordinator.rules.publications import Publications
from tests.support.fakes.simulated_federation import started

ROSTER = ("a", "b", "c")


@pytest.fixture
def rule():
    rule = Publications(ROSTER)
    rule.finished("run-1", ROSTER, ())
    return rule


def test_a_run_that_nobody_holds_back_is_live_at_once(rule):
    assert rule.state == Publication(("run-1",))
    for run in ("run-2", "run-3"):
        rule.finished(run, ROSTER, ())
    assert rule.state == Publication(("run-2", "run-3")), "a client has no more than two"


def test_a_run_is_live_when_the_last_one_publishes_it(rule):
    rule.finished("run-2", ROSTER, ("c", "a"))
    for client, holds in (("a", True), ("b", False), ("c", False)):
        rule.heard(client, "run-2", holds=holds)
    assert rule.state == Publication(("run-1",), "run-2", ("a",))
    rule.heard("a", "run-2", holds=False)
    assert rule.state == Publication(("run-1", "run-2"))


def test_who_is_away_holds_on_and_who_lost_the_model_does_not(rule):
    rule.finished("run-2", ROSTER, ("a", "b"))
    rule.heard("a", "", holds=False)
    assert rule.state.held_by == ("b",)
    rule.heard("c", "run-2", holds=True)
    assert rule.state.held_by == ("b", "c"), "it may think again, while it is not live"


def test_a_later_run_takes_the_place_of_one_that_is_held(rule):
    rule.finished("run-2", ROSTER, ("a",))
    rule.finished("run-3", ROSTER, ())
    assert rule.state == Publication(("run-1", "run-3"))
    for client, next_run in (("a", "run-2"), ("b", ""), ("c", "")):
        rule.heard(client, next_run, holds=bool(next_run))
    assert rule.state == Publication(("run-1", "run-3")), "it is never live"


def test_only_members_of_a_run_hold_it(rule):
    rule.finished("run-2", ("a", "b"), ("a",))
    rule.heard("c", "run-2", holds=True)
    rule.heard("b", "made up", holds=True)
    assert rule.state.held_by == ("a",)


def test_a_restart_changes_nothing(rule):
    rule.finished("run-2", ROSTER, ("a",))
    after = Publications(ROSTER)
    after.restore(json.loads(json.dumps(rule.snapshot())))
    assert after.state == rule.state
    after.heard("b", "run-2", holds=True)
    assert after.state.held_by == ("a", "b")


def test_what_was_lost_is_learnt_from_the_clients():
    rule = Publications(ROSTER, {"run-1": ROSTER, "run-2": ROSTER})
    rule.heard("a", "run-1", holds=True)
    assert rule.state == Publication(), "that is not the last one"
    rule.heard("b", "run-2", holds=False)
    assert rule.state == Publication((), "run-2", ("a", "c")), "the others have not spoken yet"
    rule.heard("a", "run-2", holds=True)
    rule.heard("c", "run-2", holds=False)
    assert rule.state.held_by == ("a",)
    rule.heard("a", "run-2", holds=False)
    assert rule.state == Publication(("run-2",))
    rule.heard("b", "never finished", holds=True)
    assert rule.state == Publication(("run-2",))


def come_with(play, name, **says):
    """Register anew; every heartbeat says this, the first one too."""
    play.clients[name] = play.register(name, wants_run=False)
    play.says[play.clients[name].incarnation] = says
    play.connect(name)


def held():
    """A federation after a run that a holds back."""
    play = started("a", "b")
    play.beat("a", state=State.FINISHED, run="run-1", next_run="run-1", holds=True)
    play.beat("b", state=State.FINISHED, run="run-1")
    come_with(play, "a", next_run="run-1", holds=True)
    come_with(play, "b", next_run="run-1")
    return play


def test_the_federation_asks_its_members_and_tells_all():
    play = held()
    status = play.federation.status(play.now)
    assert (status.held_run, status.held_by) == ("run-1", ("a",))
    play.restart()
    assert play.federation.publication == Publication((), "run-1", ("a",))
    play.serve("a", next_run="run-1", holds=False)
    assert play.federation.publication == Publication(("run-1",))


def test_who_has_trained_the_next_run_already_holds_the_one_before_until_its_end():
    play = held()
    play.federation.retrain(None)
    for name in ("a", "b"):
        play.prepare(name, 1)
    play.ready("a", "b", run="run-2")
    play.beat("a", state=State.FINISHED, run="run-2", next_run="run-2", holds=True)
    assert play.federation.publication == Publication((), "run-1", ("a",))
    play.beat("b", state=State.FINISHED, run="run-2")
    assert play.federation.publication == Publication((), "run-2", ("a",))
