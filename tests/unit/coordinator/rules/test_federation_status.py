"""What people are told of the federation."""

from laser_vfl.coordinator.rules.directives import State
from laser_vfl.coordinator.rules.federation_status import ClientSummary
from laser_vfl.coordinator.rules.run_start import StartRule
from tests.support.fakes.simulated_federation import SEED, Play, called, started


def activities(play):
    return [client.activity for client in play.federation.status(play.now).clients]


def test_nobody_is_there():
    status = Play("a", "b").federation.status(1000.0)
    assert status.clients == (ClientSummary("a", 0), ClientSummary("b", 0))
    assert (status.run, status.training, status.seed, status.wanted) == ("", False, SEED, False)
    assert (status.waiting_for, status.last_run, status.num_samples) == ((), "", 0)


def test_a_client_in_full():
    play = Play("a", "b")
    play.come("a", has_head=False, wants_run=False)
    play.beat("a", next_step=3, model_run="run-0", num_steps=9)
    [a, b] = play.federation.status(play.now + 1.5).clients
    assert a == ClientSummary(
        "a",
        0,
        up=True,
        address="a:1",
        has_head=False,
        activity="idle",
        model_run="run-0",
        next_step=3,
        num_steps=9,
        silent_s=1.5,
    )
    assert not b.up


def test_a_heartbeat_says_which_model_is_served_and_how_long_the_run_is():
    play = started("a")
    play.beat("a", state=State.RUNNING, run="run-1", next_step=2, model_run="run-0", num_steps=8)
    report = play.clients["a"].report
    assert (report.model_run, report.num_steps) == ("run-0", 8)
    play.beat("a", state=State.FINISHED, run="run-1", next_step=8)
    report = play.clients["a"].report
    assert (report.model_run, report.num_steps) == ("", 0)


def test_activity_follows_the_run():
    play = Play("a", "b", is_obliging=False)
    play.idle("a")
    assert activities(play) == ["idle", ""]
    play.join("b", 1)
    assert activities(play) == ["gathering", "gathering"]
    play.prepare("a", 1)
    assert activities(play) == ["aligning", "aligning"]
    play.align("a", "b")
    assert activities(play) == ["gathering", "gathering"]
    play.ready("a")
    assert activities(play) == ["ready", "gathering"]
    play.ready("b")
    play.beat("a", "b", state=State.RUNNING, run="run-1")
    assert activities(play) == ["training", "training"]
    play.beat("a", state=State.FINISHED, run="run-1")
    assert activities(play) == ["finished", "training"]
    play.beat("b", state=State.FINISHED, run="run-1")
    assert activities(play) == ["finished", "finished"]
    play.idle("a", "b")
    assert activities(play) == ["idle", "idle"]


def test_the_run_from_wish_to_end():
    play = Play("a", "b")
    play.join("a", 1)
    status = play.federation.status(play.now)
    assert (status.run, status.wanted, status.waiting_for) == ("", True, ("b",))
    play.is_obliging = False
    play.join("b", 1)
    play.commit("b")
    status = play.federation.status(play.now)
    assert (status.run, status.wanted, status.waiting_for) == ("", True, ("a",))
    play.commit("a")
    play.submit("a")
    assert play.federation.status(play.now).waiting_for == ("b",)
    play.align("b")
    status = play.federation.status(play.now)
    assert (status.run, status.training, status.waiting_for) == ("run-1", False, ("a", "b"))
    play.ready("a", "b")
    status = play.federation.status(play.now)
    assert (status.run, status.training, status.wanted) == ("run-1", True, False)
    assert (status.last_run, status.last_outcome) == ("", "")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    status = play.federation.status(play.now)
    assert (status.run, status.training) == ("", False)
    assert (status.last_run, status.last_outcome) == ("run-1", "finished")


def test_the_seed_is_the_runs_or_the_next_ones():
    play = Play("a")
    play.federation.retrain(42)
    assert play.federation.status(play.now).seed == 42
    play.idle("a")
    play.prepare("a", 1)
    play.ready("a")
    assert play.federation.status(play.now).seed == 42
    play.beat("a", state=State.FINISHED, run="run-1")
    assert play.federation.status(play.now).seed == SEED


def test_a_refused_run_says_why_and_one_given_up_does_not_count():
    play = called("a", "b")
    play.refuse("a", "b", "its list is too long")
    status = play.federation.status(play.now)
    assert status.last_run == "run-1"
    assert status.last_outcome == "a refused b in the alignment: its list is too long"
    play.is_obliging = True
    play.join("a", 1)
    play.join("b", 1)
    play.disconnect("b")
    assert play.event_names[-1] == "given up"
    assert play.federation.status(play.now).last_run == "run-1"


def test_members_come_and_go():
    play = started("a", "b", "c")
    play.train("a", checkpoints=(3,), num_redone=2, num_dropped=5)
    play.train("b", "c", checkpoints=(3,))
    status = play.federation.status(play.now)
    assert (status.generation, status.members) == (1, ("a", "b", "c"))
    assert (status.departures, status.checkpoint) == ((), 3)
    assert (status.clients[0].num_redone, status.clients[0].num_dropped) == (2, 5)
    play.federation.gone(play.clients["b"], "the disk is full")
    play.tick()
    play.answer(a=4)
    assert activities(play) == ["stopped", "", "training"]
    play.answer(c=4)
    status = play.federation.status(play.now)
    assert (status.generation, status.members) == (2, ("a", "c"))
    [departure] = status.departures
    assert (departure.client, departure.generation) == ("b", 2)
    play.come("b", nonce="again", wants_run=False)
    play.ready("b")
    assert activities(play) == ["training", "joining", "training"]


def test_the_members_of_the_last_run_are_told_until_the_next_one_trains():
    play = started("a", "b", "c")
    play.train("a", "b", "c", checkpoints=(3,))
    play.federation.gone(play.clients["b"], "the disk is full")
    play.tick()
    play.answer(a=4, c=4)
    play.beat("a", "c", state=State.FINISHED, run="run-1")

    def story():
        status = play.federation.status(play.now)
        left = [departure.client for departure in status.departures]
        return status.training, status.generation, status.members, left, status.checkpoint

    assert play.federation.run is None
    assert story() == (False, 2, ("a", "c"), ["b"], 3)
    play.federation.retrain(None)
    play.idle("a", "c")
    play.join("b", 1)
    play.prepare("a", 1)
    play.prepare("c", 1)
    assert play.federation.run.id == "run-2"
    assert story() == (False, 2, ("a", "c"), ["b"], 3)
    play.ready("a", "b", "c", run="run-2")
    assert story() == (True, 1, ("a", "b", "c"), [], 0)


def test_a_refused_run_has_no_members():
    play = started("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    assert play.federation.status(play.now).generation == 1
    play.is_obliging = False
    play.federation.retrain(None)
    play.idle("a")
    play.join("b", 1)
    play.prepare("a", 1)
    play.refuse("a", "b", "its list is too long")
    status = play.federation.status(play.now)
    assert (status.last_run, status.generation, status.members) == ("run-2", 0, ())


def test_whom_a_run_waits_for_is_seen():
    play = started("a", "b", quorum=2)
    play.federation.gone(play.clients["b"], "the disk is full")
    play.tick()
    assert play.federation.status(play.now).waiting_for == ()
    play.answer(a=4)
    assert play.federation.status(play.now).waiting_for == ("b",)


def test_samples_are_counted_for_the_run_and_remembered_after_it():
    play = Play("a", "b", "c", start=StartRule(quorum=2, after_s=0))
    play.join("a", 1, 2, 3)
    play.join("b", 3, 4)

    def counts():
        status = play.federation.status(play.now)
        return status.num_samples, [client.num_samples for client in status.clients]

    assert counts() == (4, [3, 2, 0])
    play.ready("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    assert play.federation.run is None
    assert counts() == (4, [3, 2, 0])
    play.idle("a", "b")
    play.join("c", 1)
    play.prepare("b", 4)
    play.federation.approve("c", None)
    play.tick()
    assert play.federation.run.members == ("b", "c")
    assert counts() == (2, [0, 1, 1])


def test_who_wants_a_run_during_another_is_seen():
    play = Play("a", "late", start=StartRule(quorum=1, after_s=0))
    play.join("a", 1)
    play.ready("a")
    assert not play.federation.status(play.now).wanted
    play.come("late")
    status = play.federation.status(play.now)
    assert (status.wanted, status.waiting_for) == (True, ())
    assert activities(play) == ["ready", "gathering"]


def test_evaluations_are_not_counted_as_steps():
    play = started("a")
    for next_step, told in ((557, 557), (790, 790), (801, 790), (810, 790)):
        play.train("a", next_step=next_step, num_steps=790)
        [client] = play.federation.status(play.now).clients
        assert (client.next_step, client.num_steps) == (told, 790)
