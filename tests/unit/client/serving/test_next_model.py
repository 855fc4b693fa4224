"""The model that is trained and not served yet: who decides when it may be."""

import asyncio

import pytest
from torch import nn

from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.session.coordinator_session import PublicationNews
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.core.errors import MismatchError


@pytest.fixture
def state(tmp_path):
    """It serves run-1, and has trained run-2."""
    state = StateDirectory(tmp_path)
    for run in ("run-1", "run-2"):
        state.write_model(run, nn.Linear(1, 1), {"scores": None})
        if run == "run-1":
            state.publish(run)
    return state


def ended(model, run, **news):
    """The model's run has ended; return whether it is not served yet."""
    asyncio.run(model.trained(run))
    model.hear(PublicationNews(**news))
    return asyncio.run(model.is_held(run))


def test_what_nobody_holds_back_is_served_at_once(state):
    model = NextModel(state, "auto")
    assert not ended(model, "run-2", live=("run-1", "run-2"))
    assert (model.run, state.read_next()) == ("", None)


def test_when_the_coordinator_is_gone_a_client_decides_for_itself(state):
    assert not asyncio.run(NextModel(state, "auto").is_held("run-2"))


def test_what_another_holds_back_waits_for_the_word_also_after_a_restart(state):
    assert ended(NextModel(state, "auto"), "run-2", held_run="run-2", held_by=("shop",))
    model = NextModel(state, "auto")
    model.hear(PublicationNews(("run-1",), "run-2", ("shop",)))
    assert (model.run, model.holds, model.is_due, model.held_by) == (
        "run-2",
        False,
        False,
        ("shop",),
    )
    model.hear(PublicationNews(("run-1", "run-2")))
    assert model.is_due


def test_who_holds_back_is_not_overruled_by_the_coordinator(state):
    assert ended(NextModel(state, "hold"), "run-2", live=("run-1", "run-2"))
    model = NextModel(state, "hold")
    model.hear(PublicationNews(("run-1", "run-2")))
    assert (model.holds, model.is_due) == (True, False)
    with pytest.raises(MismatchError, match="the one that is not served yet is run-2"):
        asyncio.run(model.publish("run-1"))
    asyncio.run(model.publish("run-2"))
    assert (model.holds, model.is_due) == (False, True)
    again = NextModel(state, "hold")
    assert (again.run, again.holds) == ("run-2", False), "it has been published"


def test_who_does_not_hold_any_more_publishes_when_it_starts(state):
    assert ended(NextModel(state, "hold"), "run-2")
    assert not NextModel(state, "auto").holds


def test_a_run_that_came_to_nothing_is_never_served(state):
    model = NextModel(state, "hold")
    asyncio.run(model.trained("run-2"))
    asyncio.run(model.forget("run-2"))
    assert (model.run, state.read_next()) == ("", None)
    with pytest.raises(MismatchError, match="none is"):
        asyncio.run(model.publish(""))
