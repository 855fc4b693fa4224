"""The coordinator's rules, as a state machine that is told the time."""

import pytest

from laser_vfl.coordinator.rules.directives import (
    Finished,
    Gathering,
    Report,
    State,
    Stopped,
    Training,
    View,
    ViewMember,
)
from laser_vfl.coordinator.rules.membership.membership import NO_LIMIT
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.core.errors import AlignmentOver, MismatchError, NameTaken, NotRegistered
from tests.support.fakes.simulated_federation import SEED, TIMEOUT_S, Play, started


def test_from_registration_to_the_end():
    play = Play("bank", "shop")
    bank = play.join("bank", 1, 2, 3)
    assert play.directive("bank") == Gathering("", ("shop",), True)
    assert play.events == []
    play.clients["shop"] = shop = play.register("shop", has_head=False)
    assert play.directive("bank") == Gathering("", ("shop",), True)
    play.join("shop", 2, 9, has_head=False)

    # All are there: each is told of its own rows, and waits until all have taken them in.
    tables = play.outcome("bank")
    assert [(g.observed, g.size) for g in tables["train"].groups] == [(1, 2), (2, 1), (3, 1)]
    assert {g: rows.tolist() for g, rows in tables["train"].rows.items()} == {0: [0, 2], 2: [1]}
    assert tables["test"].groups == ()
    assert tables["serve"].groups == tables["train"].groups
    tables = play.outcome("shop")
    assert {g: rows.tolist() for g, rows in tables["train"].rows.items()} == {1: [1], 2: [0]}
    assert play.directive("bank") == Gathering("run-1", (), True)
    play.ready("bank")
    assert play.directive("bank") == play.directive("shop") == Gathering("run-1", (), True)
    play.ready("shop")
    view = View(
        "run-1",
        1,
        (
            ViewMember("bank", bank.incarnation, "bank:1", 0, True),
            ViewMember("shop", shop.incarnation, "shop:1", 0, False),
        ),
        SEED,
        heads=("bank",),
    )
    assert play.view == view
    assert play.directive("bank") == play.directive("shop") == Training(view, resume=NO_LIMIT)

    play.beat("bank", "shop", state=State.RUNNING, run="run-1", next_step=7)
    assert bank.report.next_step == 7
    play.beat("bank", state=State.FINISHED, run="run-1")
    assert play.directive("bank") == play.directive("shop") == Training(view, resume=NO_LIMIT)
    play.beat("shop", state=State.FINISHED, run="run-1")
    assert play.directive("bank") == play.directive("shop") == Finished("run-1")
    assert play.federation.run is None
    assert play.events == [
        ("aligning", "run-1", "run"),
        ("aligned", "run-1", "run"),
        ("started", "run-1", ""),
        ("finished", "run-1", ""),
    ]
    # Daemons that stay up after training do not start another run by themselves.
    play.wait(30, "bank", "shop", state=State.FINISHED)
    assert play.directive("bank") == Finished("run-1")
    assert play.federation.run is None


def test_the_view_lists_members_in_roster_order_whoever_came_first():
    play = Play("a", "b", "c")
    for name in ("c", "a", "b"):
        play.join(name, 1)
    play.ready("b", "c", "a")
    assert [member.client for member in play.view.members] == ["a", "b", "c"]


def test_a_client_is_complete_only_with_a_session_and_read_tables():
    play = Play("bank")
    play.clients["bank"] = bank = play.register("bank")
    play.federation.heartbeat(bank, Report(prepared=True), play.now)
    assert play.events == []
    play.clients["bank"] = play.register("bank")
    play.connect("bank")
    assert play.directive("bank") == Gathering("", ("bank",), True)
    assert play.events == []
    play.prepare("bank", 1)
    assert play.federation.run is not None


def test_ready_for_another_run_does_not_count():
    play = Play("a", "b")
    play.join("a", 1)
    play.join("b", 1)
    play.ready("a", "b", run="run-0")
    assert play.directive("a") == Gathering("run-1", (), True)
    play.ready("a", "b", run="run-1")
    assert isinstance(play.directive("a"), Training)


def test_quorum_starts_after_its_time():
    play = Play("a", "b", "c", start=StartRule(quorum=2, after_s=5))
    play.join("a", 1)
    play.wait(8, "a", state=State.JOINING, run="")
    assert play.federation.run is None
    play.join("b", 1)
    play.wait(4.5, "a", "b", state=State.JOINING, run="")
    assert play.federation.run is None
    play.wait(1, "a", "b", state=State.JOINING, run="")
    assert play.federation.run.members == ("a", "b")
    groups = play.outcome("a")["train"].groups
    assert [(g.observed, g.size) for g in groups] == [(0b011, 1)]


def test_quorum_does_not_wait_when_all_are_there():
    play = Play("a", "b", start=StartRule(quorum=1, after_s=3600))
    play.join("a", 1)
    assert play.federation.run is None
    play.join("b", 1)
    assert play.federation.run.members == ("a", "b")


def test_quorum_that_is_lost_waits_anew():
    play = Play("a", "b", "c", start=StartRule(quorum=2, after_s=5))
    play.join("a", 1)
    play.join("b", 1)
    play.wait(4, "a", "b", state=State.JOINING, run="")
    play.disconnect("b")
    play.wait(1, "a", state=State.JOINING, run="")
    play.join("b", 1, nonce="again")
    play.wait(4, "a", "b", state=State.JOINING, run="")
    assert play.federation.run is None
    play.wait(2, "a", "b", state=State.JOINING, run="")
    assert play.federation.run is not None


def test_without_a_start_rule_nothing_starts_without_everybody():
    play = Play("a", "b")
    play.join("a", 1)
    play.wait(3600, "a", state=State.JOINING, run="")
    assert play.directive("a") == Gathering("", ("b",), True)


def test_a_late_client_waits():
    play = Play("a", "b", "late", start=StartRule(quorum=2, after_s=0))
    play.join("a", 1)
    play.join("b", 1)
    play.ready("a", "b")
    play.join("late", 1)
    play.wait(5, "a", "b")
    play.wait(1, "a", "b", "late")
    assert play.federation.run.members == ("a", "b")
    assert play.directive("late") == Gathering("", (), True)
    with pytest.raises(AlignmentOver):
        play.outcome("late")
    assert isinstance(play.directive("a"), Training)
    # Its leaving is nobody's loss.
    play.disconnect("late")
    assert isinstance(play.directive("a"), Training)


def test_an_unknown_name_is_refused():
    with pytest.raises(MismatchError, match='"bnak" is not on the roster'):
        Play("bank", "shop").register("bnak")


def test_a_second_daemon_of_the_same_name_is_refused_while_the_first_is_there():
    play = Play("bank", "shop")
    first = play.join("bank", 1)
    with pytest.raises(NameTaken):
        play.register("bank", nonce="another")
    assert play.federation.find("bank", first.incarnation) is first
    play.disconnect("bank")
    second = play.register("bank", nonce="another")
    assert second.incarnation > first.incarnation
    assert play.federation.find("bank", second.incarnation) is second
    with pytest.raises(NotRegistered):
        play.federation.find("bank", first.incarnation)


def test_the_same_process_gets_the_same_incarnation():
    play = Play("bank", "shop")
    first = play.register("bank")
    assert play.register("bank") is first
    play.join("bank", 1)
    assert play.register("bank") is first
    incarnations = {play.register(name).incarnation for name in ("bank", "shop")}
    assert len(incarnations) == 2


def test_messages_of_unknown_processes_are_refused():
    play = Play("bank", "shop")
    with pytest.raises(NotRegistered):
        play.federation.find("bank", 1)
    bank = play.register("bank")
    with pytest.raises(NotRegistered):
        play.federation.find("bank", bank.incarnation + 1)
    with pytest.raises(NotRegistered):
        play.federation.find("stranger", bank.incarnation)


@pytest.mark.parametrize("how", ["session", "stopped", "silence", "restart"])
def test_lost_before_the_view_the_others_gather_again(how):
    play = Play("a", "b")
    play.join("a", 1)
    play.join("b", 1)
    play.ready("a")
    if how == "session":
        play.disconnect("b")
    elif how == "stopped":
        play.federation.gone(play.clients["b"], "out of memory")
    elif how == "silence":
        play.wait(TIMEOUT_S + 1, "a", state=State.READY)
    else:
        play.disconnect("b")
        play.register("b", nonce="again")
    assert play.federation.run is None
    assert play.directive("a") == Gathering("", ("b",), True)
    with pytest.raises(AlignmentOver):
        play.outcome("a")
    assert play.event_names == ["aligning", "aligned", "given up"]
    # The one that is still there has not forgotten its tables, nor the coordinator.
    play.join("b", 1, 2, nonce="again")
    assert play.directive("a") == Gathering("run-2", (), True)
    assert isinstance(play.directive("a"), Gathering)
    play.ready("b", run="run-2")
    assert play.directive("a") == Gathering("run-2", (), True)
    play.ready("a", run="run-2")
    assert play.directive("a") == play.directive("b")
    assert play.view.run == "run-2"


def test_lost_in_a_run_the_others_stop_and_go_on_without_it():
    play = started("a", "b", "c")
    play.federation.gone(play.clients["b"], "the disk is full")
    play.tick()
    assert play.directive("a") == play.directive("c")
    assert play.directive("a").stop == 1
    play.answer(a=4)
    assert play.view.generation == 1, "c has not stopped yet"
    play.answer(c=5)
    assert (play.view.generation, play.stop) == (2, 0)
    assert [(m.client, m.next_step) for m in play.view.members] == [("a", 4), ("c", 5)]
    assert play.departures == [("b", "the disk is full")]
    assert play.events[-1] == ("changed", "run-1", "generation 2 has a from 4, c from 5")
    play.beat("a", "c", state=State.FINISHED, run="run-1")
    assert play.directive("a") == play.directive("c") == Finished("run-1")


def test_lost_in_a_run_and_back_with_nothing_it_waits_for_the_next_one():
    play = started("a", "b")
    play.federation.gone(play.clients["b"], "")
    play.tick()
    play.answer(a=4)
    assert play.departures == [("b", "it stopped")]
    play.join("b", 1, nonce="again")
    assert play.directive("b") == Gathering("", (), True)
    play.beat("a", state=State.FINISHED, run="run-1")
    play.federation.retrain(None)
    play.join("a", 1)
    play.beat("b")
    play.ready("a", "b", run="run-2")
    assert play.view.clients == ("a", "b")


def test_a_session_that_breaks_in_a_run_may_come_back():
    play = started("a", "b")
    play.disconnect("b")
    play.wait(TIMEOUT_S - 2, "a")
    assert play.stop == 0
    assert play.register("b") is play.clients["b"]
    play.connect("b")
    play.wait(TIMEOUT_S * 2, "a", "b")
    assert play.directive("a") == play.directive("b") == Training(play.view, resume=NO_LIMIT)
    assert play.view.generation == 1


def test_a_client_that_starts_anew_in_a_run_is_left_out_at_once():
    play = started("a", "b")
    play.disconnect("b")
    play.register("b", nonce="again")
    play.tick()
    assert play.stop == 1
    play.answer(a=4)
    assert play.view.clients == ("a",)
    assert play.departures == [("b", "it was started anew")]


def test_a_broken_session_that_was_replaced_means_nothing():
    play = Play("a", "b")
    play.join("a", 1)
    old = play.sessions["a"]
    play.connect("a")
    play.federation.disconnected(play.clients["a"], old, play.now)
    assert play.clients["a"].in_session
    assert play.federation.find("a", play.clients["a"].incarnation)


def test_silence_is_a_loss_after_the_timeout_and_not_before():
    play = started("a", "b")
    play.wait(TIMEOUT_S - 0.5, "a")
    assert play.stop == 0
    play.wait(0.5, "a")
    assert play.stop == 1
    play.wait(1, "a", stopped=1)
    assert play.departures == [("b", "it was silent for 11 s")]
    # It has to register anew, also when it was only out of touch.
    with pytest.raises(NotRegistered):
        play.federation.find("b", play.clients["b"].incarnation)
    assert play.register("b").incarnation > play.clients["b"].incarnation


def test_after_a_pause_of_its_own_the_coordinator_blames_nobody():
    play = started("a", "b")
    play.now += 10 * TIMEOUT_S
    play.federation.tick(play.now)
    assert play.stop == 0
    play.wait(TIMEOUT_S - 1, "a", "b")
    assert play.stop == 0
    # Then time counts as ever.
    play.wait(TIMEOUT_S + 1, "a")
    assert play.stop == 1


def test_a_heartbeat_may_be_the_first_thing_after_a_pause():
    play = started("a", "b")
    play.now += MembershipPolicy.own_pause_s + TIMEOUT_S
    play.train("a")
    assert play.stop == 0


def test_without_labels_anywhere_nothing_is_learnt():
    play = Play("a", "b")
    play.join("a", 1, has_head=False)
    play.join("b", 1, has_head=False)
    for name in ("a", "b"):
        verdict = play.directive(name)
        assert isinstance(verdict, Stopped)
        assert "no client has labels" in verdict.reason
    assert play.federation.run is None
    assert play.events == []


def test_a_finished_client_may_leave_once_all_have_finished():
    play = started("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.disconnect("a")
    assert play.directive("b") == Finished("run-1")
    assert play.federation.run is None


def test_a_finished_client_that_leaves_too_early_leaves_the_others_to_finish():
    play = started("a", "b")
    play.beat("a", state=State.FINISHED, run="run-1")
    play.federation.gone(play.clients["a"], "it was stopped")
    play.tick()
    play.answer(b=9)
    assert play.view.clients == ("b",)
    play.beat("b", state=State.FINISHED, run="run-1")
    assert play.directive("b") == Finished("run-1")
    # The one that left hears so when it asks for that run.
    play.come("a", nonce="again", wants_run=False)
    play.beat("a", run="run-1")
    assert play.directive("a") == Finished("run-1")


def test_everybody_who_is_gone_is_left_out_in_one_change():
    play = started("a", "b", "c")
    play.disconnect("b")
    play.federation.gone(play.clients["a"], "the disk is full")
    play.wait(TIMEOUT_S, "c", stopped=1)
    assert play.view.clients == ("c",)
    assert play.view.generation == 2
    assert play.departures == [("a", "the disk is full"), ("b", "its connection was cut")]


def test_a_bystander_that_leaves_stops_nobody():
    play = started("a", "b")
    bystander = Registration("c", "nonce-c", 99, "c:1", True, True, play.now)
    play.federation.gone(bystander, "it was stopped")
    play.tick()
    assert play.stop == 0


def test_who_is_stuck_at_a_step_is_left_out_and_who_waits_for_it_is_not():
    play = started("a", "b", step_timeout_s=30.0)
    play.train("a", next_step=4, waiting_for=("b",), phase_s=29)
    play.train("b", next_step=4, phase_s=29)
    assert play.stop == 0
    play.train("a", next_step=4, waiting_for=("b",), phase_s=31)
    play.train("b", next_step=4, phase_s=31)
    assert play.stop == 1
    play.answer(a=4)
    assert play.departures == [("b", "it has been at one step for 31 s")]


def test_who_makes_progress_is_never_stuck():
    play = started("a", "b", step_timeout_s=2.0)
    for step in range(20):
        play.now += 1.0
        play.train("a", "b", next_step=step, phase_s=0.5)
    assert play.stop == 0


def test_who_waits_is_not_blamed_though_its_heartbeat_is_late():
    """However short the time for a step is, compared with that between two heartbeats."""
    play = started("a", "b", step_timeout_s=1.0)
    play.train("a", next_step=4, phase_s=0.9)
    play.now += 1.6
    play.tick()
    assert play.stop == 0, "it may have come to wait since then"
    play.train("a", next_step=4, phase_s=1.1)
    assert play.stop == 1
