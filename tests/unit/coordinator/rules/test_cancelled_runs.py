"""An operator cancels the next run, and nobody has to begin again before an operator says so."""

import pytest

from laser_vfl.coordinator.rules.directives import Gathering, RequestState
from laser_vfl.core.errors import AlignmentRefused, MismatchError
from tests.support.fakes.simulated_federation import Play, started

PENDING = Gathering("", (), False, own_request=RequestState.PENDING)


def aligning(*roster):
    """Clients that are called to the alignment of their first run, and do nothing in it."""
    play = Play(*roster, is_obliging=False)
    for number, name in enumerate(roster):
        play.join(name, number)
    assert play.event_names == ["aligning"]
    return play


def cancel(play):
    return play.federation.cancel(play.now)


def test_an_alignment_ends_for_everybody_and_nobody_is_held_back():
    play = aligning("a", "b")
    assert cancel(play) == "run-1"
    assert play.event_names == ["aligning", "given up"]
    for name in ("a", "b"):
        assert play.directive(name) == PENDING
        with pytest.raises(AlignmentRefused):
            play.federation.outcome(play.clients[name], "run-1")
    status = play.federation.status(play.now)
    assert (status.wanted, status.run, status.last_run) == (False, "", "run-1")
    assert "cancelled" in status.last_outcome
    assert status.requests == ("a", "b")
    assert all(client.up and not client.problem for client in status.clients)


def test_the_first_run_starts_no_more_by_itself():
    play = aligning("a", "b")
    cancel(play)
    play.rest(60, "a", "b")
    play.join("b", 1)  # it was restarted
    play.rest(60, "a", "b")
    assert play.event_names == ["aligning", "given up"]
    play.is_obliging = True
    play.federation.retrain(5)
    play.tick()
    assert play.directive("a") == Gathering("run-2", (), True)


def test_a_restarted_coordinator_remembers_it():
    play = aligning("a", "b")
    cancel(play)
    stored = play.federation.snapshot()
    play.restart()
    play.federation.restore(stored, {}, play.now)
    play.join("a", 1)
    play.join("b", 2)
    assert play.directive("a") == PENDING
    assert play.event_names == ["aligning", "given up"]


def test_a_run_that_is_asked_for_is_taken_back():
    play = Play("a", "b")
    play.idle("a")
    play.federation.retrain(5)
    assert play.federation.wanted
    assert cancel(play) == ""
    assert not play.federation.wanted
    assert play.federation.status(play.now).last_run == ""


def test_a_run_that_waits_for_its_members_is_given_up():
    play = Play("a", "b")
    play.join("a", 1)
    play.join("b", 2)
    play.ready("a")
    assert cancel(play) == "run-1"
    assert play.event_names[-1] == "given up"
    assert play.federation.run is None


def test_one_that_trains_goes_on():
    play = started("a", "b")
    with pytest.raises(MismatchError):
        cancel(play)
    assert play.federation.run is not None


def test_there_has_to_be_something_to_cancel():
    play = Play("a", "b")
    play.idle("a", "b")
    with pytest.raises(MismatchError):
        cancel(play)
    play.federation.retrain(5)
    cancel(play)
    with pytest.raises(MismatchError):
        cancel(play)


def test_another_run_after_it_is_known_by_the_same_points():
    play = aligning("a", "b")
    cancel(play)
    assert not play.federation.alignments._unusable
