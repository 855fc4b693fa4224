"""Alignments that somebody asks for to know the overlap; nobody trains."""

import pytest

from laser_vfl.coordinator.rules.directives import Gathering, RefusedDryRun, State
from laser_vfl.coordinator.rules.policies import AlignmentPolicy
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.core.alignment_purpose import TABLES, AlignmentPurpose
from laser_vfl.core.errors import AlignmentOver, AlignmentRefused, LimitExceeded, NotReady
from tests.support.fakes.simulated_federation import Play, started

MOST_FAILED, FAILED_WITHIN_S = AlignmentPolicy.most_failed, AlignmentPolicy.failed_within_s


def resting(*roster, present=None, **keys):
    """A federation of idle clients, who act only when told."""
    play = Play(*roster, is_obliging=False, **keys)
    play.idle(*(present or roster))
    return play


def names(call):
    return [member.client for member in call.members]


@pytest.mark.parametrize("scheme", ["ecdh", "hmac"])
def test_a_dry_run_is_among_those_present_and_starts_nothing(scheme):
    play = resting("a", "b", "c", present=("c", "a"), scheme=scheme)
    play.dry_run("c")
    assert play.events == [("aligning", "run-1", "dry run, without b")]
    call = play.call("a")
    assert (call.id, call.purpose, call.run) == ("run-1", AlignmentPurpose.DRY_RUN, "run-1")
    assert names(call) == ["a", "c"]
    assert play.directive("a") == Gathering("", (), False, call)
    play.prepare("a", 1, 2)
    play.prepare("c", 2, 3)
    assert play.alignment("a").tables == TABLES
    assert play.outcome("a") is None
    assert play.align("a", "c")
    assert play.event_names == ["aligning", "aligned"]
    for name in ("a", "c"):
        groups = play.outcome(name)["serve"].groups
        assert [(g.observed, g.size) for g in groups] == [(1, 1), (4, 1), (5, 1)]
    play.fetch("a", "c")
    play.rest(AlignmentPolicy.result_s + 10, "a", "c")
    assert play.federation.run is None
    assert play.event_names == ["aligning", "aligned"]
    assert play.directive("a") == Gathering("", (), False)


def test_train_and_test_may_share_people_when_nobody_trains():
    play = resting("a", "b", scheme="hmac")
    play.dry_run("a")
    play.prepare("a", 1)
    play.prepare("b", 2, test=[1])
    assert play.align("a", "b")


def test_an_outcome_is_kept_until_all_have_fetched_it():
    play = resting("a", "b")
    play.dry_run("a")
    play.align("a", "b")
    play.fetch("a")
    play.rest(10, "a", "b")
    play.fetch("b")
    play.tick()
    with pytest.raises(AlignmentOver):
        play.outcome("b")


def test_an_outcome_is_kept_for_a_minute():
    play = resting("a", "b")
    play.dry_run("a")
    play.align("a", "b")
    play.fetch("a")
    play.rest(AlignmentPolicy.result_s, "a", "b")
    assert play.outcome("b") is not None
    play.rest(1, "a", "b")
    with pytest.raises(AlignmentOver):
        play.outcome("b")


def test_one_dry_run_after_another():
    play = resting("a", "b")
    for _ in range(3):
        play.dry_run("b")
        assert play.align("a", "b")
        play.fetch("a", "b")
    assert [id for event, id, _ in play.events if event == "aligned"] == ["run-1", "run-2", "run-3"]


def test_who_asks_while_one_is_under_way_shares_it():
    play = resting("a", "b")
    play.dry_run("a")
    play.dry_run("b")
    play.align("a", "b")
    play.fetch("a", "b")
    play.rest(5, "a", "b")
    assert play.event_names == ["aligning", "aligned"]


def test_who_asks_while_one_is_under_way_without_it_gets_another():
    play = resting("a", "b", present=("a",))
    play.dry_run("a")
    play.idle("b")
    play.dry_run("b")
    assert play.call("b") is None
    play.align("a")
    play.fetch("a")
    play.tick()
    assert names(play.call("b")) == ["a", "b"]


def test_the_wish_leaves_with_who_asked():
    play = resting("a", "b")
    play.dry_run("a")
    play.disconnect("a")
    assert play.events[-1] == ("given up", "run-1", "lost a: its session ended")
    play.rest(5, "b")
    assert play.call("b") is None
    assert play.event_names == ["aligning", "given up"]


def test_without_somebody_else_it_is_done_anew_among_those_present():
    play = resting("a", "b", "c")
    play.dry_run("a")
    play.commit("a", "b", "c")
    play.disconnect("b")
    play.tick()
    assert play.events[1:] == [
        ("given up", "run-1", "lost b: its session ended"),
        ("aligning", "run-2", "dry run, without b"),
    ]
    assert play.align("a", "c")


def test_a_refusal_is_heard_by_all_and_ends_nobodys_registration():
    play = resting("a", "b")
    play.dry_run("a")
    play.refuse("b", "a", "it sent a point twice")
    reason = "b refused a in the alignment: it sent a point twice"
    assert play.events[1:] == [("refused", "run-1", reason)]
    for name in ("a", "b"):
        assert play.directive(name) == Gathering("", (), False, None, RefusedDryRun(1, reason))
        with pytest.raises(AlignmentRefused, match=reason):
            play.outcome(name)
    play.rest(5, "a", "b")
    assert play.event_names == ["aligning", "refused"]
    assert play.federation.status(play.now).last_run == ""
    play.dry_run("a")
    assert play.align("a", "b")


def test_who_wished_for_a_dry_run_that_is_over_before_it_saw_the_call_is_told():
    play = resting("a", "b")
    play.dry_run("a")
    play.refuse("b", "b", "no")
    play.dry_run("a")
    number = play.call("a").number
    play.refuse("b", "b", "no again")
    assert play.directive("a").call is None
    assert play.directive("a").refused.number == number


def test_a_dry_run_is_refused_while_a_run_is_under_way():
    play = Play("a", "b", "late", start=StartRule(quorum=2, after_s=0), is_obliging=False)
    play.join("a", 1)
    play.join("b", 1)
    play.idle("late")

    def refused():
        for name in ("a", "late"):
            with pytest.raises(NotReady):
                play.dry_run(name)
        assert play.event_names.count("aligning") == 1

    refused()
    play.align("a", "b")
    refused()
    play.ready("a", "b")
    refused()
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.idle("a", "b")
    play.dry_run("late")
    assert names(play.call("late")) == ["a", "b", "late"]


def test_a_dry_run_does_not_disturb_a_run_that_waits_for_members():
    play = Play("a", "b", "c", is_obliging=False)
    play.join("a", 1)
    play.come("b")
    waiting = play.directive("a")
    assert waiting == Gathering("", ("b", "c"), True)
    play.dry_run("b")
    call = play.call("a")
    assert names(call) == ["a", "b"]
    assert play.directive("a") == Gathering("", ("b", "c"), True, call)
    # Who was missing comes while it is under way.
    play.prepare("b", 1)
    play.join("c", 1)
    assert play.directive("c") == Gathering("", (), True)
    assert play.event_names == ["aligning"]
    assert play.align("a", "b")
    play.fetch("a", "b")
    play.tick()
    assert play.call("c").purpose is AlignmentPurpose.RUN
    assert play.align("a", "b", "c")
    assert play.federation.run.members == ("a", "b", "c")


def test_a_run_that_could_start_waits_until_the_outcome_is_fetched():
    play = Play("a", "b", is_obliging=False)
    play.join("a", 1)
    play.dry_run("a")
    play.join("b", 1)
    assert play.align("a")
    play.tick()
    assert play.outcome("a") is not None
    play.fetch("a")
    play.rest(1, "a", "b")
    assert play.call("a").purpose is play.call("b").purpose is AlignmentPurpose.RUN


@pytest.mark.parametrize("present", [("a",), ("a", "b")])
def test_nothing_is_called_without_the_one_that_asked(present):
    play = started("a", "b")
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    # It asks in the moment between its verdict and its renewal.
    play.dry_run("a")
    assert play.event_names[-1] == "finished"
    play.rest(1)
    play.idle(*present)
    play.rest(1, *present)
    # A federation without an alignment is ready for the next run.
    play.federation.retrain(None)
    for name in ("a", "b"):
        play.join(name, 1)
    assert play.federation.run is not None


def test_a_wish_that_a_run_overtook_does_no_harm_after_it():
    play = resting("a", "b", members_of={"old": ("a", "b")})
    for name in ("a", "b"):
        play.serve(name, model_run="old", num_unaligned=1)
    assert play.call("a").purpose is AlignmentPurpose.UNALIGNED_IDS
    # Both are asked for while something else is under way.
    play.dry_run("a")
    play.federation.retrain(3)
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.align("a", "b")
    play.tick()
    assert play.call("a").purpose is AlignmentPurpose.RUN
    play.align("a", "b")
    play.ready("a", "b", run="run-2")
    play.beat("a", "b", state=State.FINISHED, run="run-2")
    # All have their verdict, and nobody has renewed yet.
    play.rest(1, "a", "b")
    assert play.event_names[-1] == "finished"
    play.is_obliging = True
    play.federation.retrain(None)
    for name in ("a", "b"):
        play.join(name, 1)
    assert play.federation.run is not None


def test_a_wish_is_answered_by_the_dry_run_under_way_or_by_the_next():
    play = resting("a", "b", present=("a",))
    number_for = play.federation.alignments.number_of_dry_run
    assert number_for(play.clients["a"]) == 1
    play.dry_run("a")
    assert play.call("a").number == number_for(play.clients["a"]) == 1
    play.idle("b")
    assert number_for(play.clients["b"]) == 2, "it was not called to the first"
    play.align("a")
    assert number_for(play.clients["a"]) == 2, "the first is over"


def test_all_who_ask_are_answered_though_one_of_them_leaves():
    play = resting("a", "b", "c")
    play.dry_run("c")
    play.dry_run("a")
    play.dry_run("b")
    play.disconnect("b")
    play.tick()
    assert names(play.call("a")) == ["a", "c"]
    assert play.align("a", "c")


def test_who_has_dry_runs_refused_without_end_has_to_pause():
    play = resting("a", "b")
    for _ in range(MOST_FAILED):
        play.dry_run("a")
        play.refuse("a", "b", "no")
        play.rest(1, "a", "b")
    begun = len(play.events)
    with pytest.raises(LimitExceeded, match="ask again in 30 s") as refused:
        play.dry_run("a")
    assert refused.value.retry_after_s == FAILED_WITHIN_S - MOST_FAILED
    play.tick()
    assert len(play.events) == begun
    play.dry_run("b")
    assert play.align("a", "b"), "nobody else has to"
    play.fetch("a", "b")
    play.rest(FAILED_WITHIN_S - MOST_FAILED, "a", "b")
    play.dry_run("a")
    assert play.align("a", "b")


def test_to_come_back_does_not_end_the_pause():
    play = resting("a", "b")
    for _ in range(MOST_FAILED):
        play.dry_run("a")
        play.disconnect("a")
        play.come("a", wants_run=False)
    with pytest.raises(LimitExceeded):
        play.dry_run("a")
    assert play.event_names == ["aligning", "given up"] * MOST_FAILED


def test_a_wish_that_somebody_else_spoils_again_and_again_is_not_fulfilled_without_end():
    play = resting("a", "b")
    play.dry_run("a")
    for _ in range(2 * MOST_FAILED):
        play.disconnect("b")
        play.come("b", wants_run=False)
        play.tick()
    assert play.event_names.count("given up") == MOST_FAILED
    assert play.call("a") is None
    play.rest(FAILED_WITHIN_S + 1, "a", "b")
    assert play.align("a", "b"), "the request stands"


def test_dry_runs_that_have_an_outcome_are_as_many_as_one_likes():
    play = resting("a", "b")
    for _ in range(2 * MOST_FAILED):
        play.dry_run("a")
        assert play.align("a", "b")
        play.fetch("a", "b")


def test_a_dry_run_that_nobody_waits_for_ends_for_all():
    play = resting("a", "b")
    play.dry_run("a")
    play.commit("a", "b")
    play.federation.alignments.withdraw_dry_run("a")
    play.tick()
    assert play.event_names == ["aligning", "given up"]
    assert play.call("a") is None
    assert play.call("b") is None
    with pytest.raises(AlignmentOver):
        play.submit("b", id="run-1")
    play.rest(60, "a", "b")
    assert play.event_names == ["aligning", "given up"], "it is not begun anew"


def test_a_dry_run_goes_on_as_long_as_somebody_waits_for_it():
    play = resting("a", "b")
    play.dry_run("a")
    play.dry_run("b")
    play.federation.alignments.withdraw_dry_run("a")
    assert play.align("a", "b")
    play.federation.alignments.withdraw_dry_run("b")
    assert play.event_names == ["aligning", "aligned"]


def test_who_withdraws_before_its_dry_run_begins_has_none():
    play = resting("a", "b")
    play.federation.dry_run(play.clients["a"], play.now)
    play.federation.alignments.withdraw_dry_run("a")
    play.tick()
    assert play.event_names == []
