"""What the coordinator's metrics say of clients, alignments and runs."""

import pytest

from laser_vfl.coordinator.api.coordinator_metrics import AWAY, CoordinatorMetrics
from laser_vfl.coordinator.rules.federation_status import _WORDS, ACTIVITIES
from tests.support.fakes.simulated_federation import Play, started


def measured(*roster, begin=Play, **keys):
    play = begin(*roster, **keys)
    meters = CoordinatorMetrics(roster)
    meters.status = lambda _: play.federation.status(play.now)
    play.observer = meters
    return play, meters


def told(meters, name):
    samples = [s for family in meters.collect() for s in family.samples if s.name == name]
    return {tuple(s.labels.values()): s.value for s in samples}


def test_who_is_there_and_what_each_does():
    play, meters = measured("a", "b", "c")
    assert told(meters, "laser_vfl_clients")[AWAY,] == 3
    play.join("a", 1, 2, 3)
    assert told(meters, "laser_vfl_client_up") == {("a",): 1, ("b",): 0, ("c",): 0}
    states = told(meters, "laser_vfl_clients")
    assert (states["gathering",], states[AWAY,], sum(states.values())) == (1, 2, 3)
    assert told(meters, "laser_vfl_waiting_for") == {("a",): 0, ("b",): 1, ("c",): 1}
    assert told(meters, "laser_vfl_training") == {(): 0}


def test_a_run_its_samples_and_its_members():
    play, meters = measured("a", "b")
    play.join("a", 1, 2, 3)
    play.join("b", 3, 4)
    play.ready("a", "b")
    assert told(meters, "laser_vfl_training") == {(): 1}
    assert told(meters, "laser_vfl_training_samples") == {(): 4}
    shares = told(meters, "laser_vfl_block_availability_ratio")
    assert shares == {("a",): 0.75, ("b",): 0.5}
    assert told(meters, "laser_vfl_view_generation") == {(): 1}
    assert told(meters, "laser_vfl_view_member") == {("a",): 1, ("b",): 1}
    assert told(meters, "laser_vfl_run_events_total")["started",] == 1
    assert told(meters, "laser_vfl_alignments_total")["run", "aligned"] == 1
    assert told(meters, "laser_vfl_alignments_total")["dry_run", "given_up"] == 0


def test_an_alignment_that_was_refused_is_counted():
    play, meters = measured("a", "b", is_obliging=False)
    play.join("a", 1, 2)
    play.join("b", 2)
    play.refuse("a", "b", "it sends nonsense")
    assert told(meters, "laser_vfl_alignments_total")["run", "refused"] == 1


def test_who_is_lost_is_counted_and_is_no_member():
    play, meters = measured("a", "b", "c", begin=started)
    play.disconnect("c")
    play.live(20, a=2, b=2)
    assert told(meters, "laser_vfl_exclusions_total") == {("a",): 0, ("b",): 0, ("c",): 1}
    assert told(meters, "laser_vfl_view_member")["c",] == 0
    assert told(meters, "laser_vfl_view_generation") == {(): 2}
    assert told(meters, "laser_vfl_run_events_total")["changed",] == 1


@pytest.mark.parametrize("word", _WORDS.values())
def test_every_state_is_known(word):
    assert word in ACTIVITIES


def test_before_the_federation_is_there_nothing_is_said_of_it():
    meters = CoordinatorMetrics(("a",))
    assert told(meters, "laser_vfl_clients") == {}
    assert told(meters, "laser_vfl_exclusions_total") == {("a",): 0}
