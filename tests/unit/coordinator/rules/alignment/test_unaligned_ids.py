"""Alignments of people who came after the training."""

import pytest

from laser_vfl.coordinator.rules.directives import Gathering, State
from laser_vfl.coordinator.rules.policies import AlignmentPolicy
from laser_vfl.coordinator.rules.run_start import StartRule
from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import ContractError
from tests.support.fakes.simulated_federation import Play, commitment, digests, finished

IDLE = Gathering("", (), False)


def serving(*members, roster=None, **keys):
    """A federation of idle clients, who serve the model of a run of these members."""
    roster = roster or members
    play = Play(*roster, members_of={"old": members}, is_obliging=False, **keys)
    play.idle(*members)
    for name in members:
        play.serve(name, model_run="old", naming="old")
    assert play.events == []
    return play


def test_somebody_new_is_aligned_by_the_members_of_the_run():
    play = serving("a", "c", roster=("a", "b", "c"))
    play.idle("b")
    play.serve("c", num_unaligned=2)
    assert play.events == [("aligning", "run-1", "newcomers, without b")]
    call = play.call("a")
    assert (call.id, call.purpose, call.run) == ("run-1", AlignmentPurpose.UNALIGNED_IDS, "old")
    assert [member.client for member in call.members] == ["a", "c"]
    assert play.directive("a") == Gathering("", (), False, call)
    assert play.call("b") is None
    assert play.alignment("a").tables == ("serve",)
    assert play.align("a", "c")
    assert play.federation.run is None


def test_those_who_were_aligned_before_are_submitted_with_the_unaligned_ids():
    play = serving("a", "b")
    play.serve("a", num_unaligned=2)
    alignment = play.alignment("a")
    alignment.commit(commitment("a", digests(1, 2), num_known=1))
    alignment.commit(commitment("b", digests(), num_known=1))
    with pytest.raises(ContractError, match="a committed to 2 points"):
        alignment.submit("a", "serve", digests(1))
    alignment.submit("a", "serve", digests(1, 2, 3))
    alignment.submit("b", "serve", digests(3))
    assert play.group()
    assert [(g.observed, g.size) for g in play.outcome("b")["serve"].groups] == [(1, 2), (3, 1)]


def test_those_of_before_and_unaligned_ids_together_are_no_more_than_the_coordinator_takes():
    play = serving("a", "b", max_people=2)
    play.serve("a", num_unaligned=1)
    alignment = play.alignment("a")
    with pytest.raises(ContractError, match="than the 2 that max_people of the coordinator"):
        alignment.commit(commitment("a", digests(1), num_known=2))
    alignment.commit(commitment("a", digests(1), num_known=1))
    alignment.commit(commitment("b", digests()))
    alignment.submit("a", "serve", digests(1, 2))


def test_who_submits_more_of_before_than_it_said_is_refused():
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    alignment = play.alignment("a")
    alignment.commit(commitment("a", digests(), num_known=1))
    alignment.commit(commitment("b", digests(2), num_known=1))
    with pytest.raises(ContractError, match="a committed to 0 points, and 1 of before"):
        alignment.submit("a", "serve", digests(1, 2))
    alignment.submit("a", "serve", digests(1))
    alignment.submit("b", "serve", digests(1, 2))
    assert play.group()


@pytest.mark.parametrize("missing", ["absent", "other model", "no model", "verdict"])
def test_unaligned_ids_wait_for_all_members_of_the_run(missing):
    play = serving("a", "b", "c")
    if missing == "absent":
        play.disconnect("b")
    elif missing == "verdict":
        play.clients["b"].verdict = object()
    else:
        play.serve("b", model_run="other" if missing == "other model" else "", naming="")
    play.serve("a", num_unaligned=1)
    play.rest(5, "a", "c")
    assert play.events == []
    assert play.call("a") is None
    play.idle("b")
    play.serve("b", model_run="old", naming="old")
    assert play.call("a").purpose is AlignmentPurpose.UNALIGNED_IDS


def test_a_run_that_the_coordinator_does_not_know_has_no_unaligned_ids():
    play = Play("a", "b", is_obliging=False)
    play.idle("a", "b")
    for name in ("a", "b"):
        play.serve(name, model_run="old", naming="old", num_unaligned=1)
    play.rest(5, "a", "b")
    assert play.events == []


def test_the_members_of_a_run_are_known_from_the_run_itself():
    play = finished("a", "b")
    play.is_obliging = False
    for name in ("a", "b"):
        play.serve(name, model_run="run-1", naming="run-1")
    assert play.event_names[-1] == "finished"
    play.serve("b", num_unaligned=1)
    assert (play.call("a").run, play.call("a").id) == ("run-1", "run-2")


def test_different_namings_are_brought_together():
    play = serving("a", "b")
    play.serve("a", naming="later")
    assert play.events == [("aligning", "run-1", "newcomers")]


def test_nobody_is_called_again_before_all_report_the_new_naming():
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    play.align("a", "b")
    play.rest(5, "a", "b")
    play.fetch("a", "b")
    play.serve("a", num_unaligned=0, naming="run-1")
    play.rest(5, "a", "b")
    assert play.event_names == ["aligning", "aligned"]
    assert play.outcome("b") is not None
    play.serve("b", naming="run-1")
    play.rest(5, "a", "b")
    assert play.event_names == ["aligning", "aligned"]
    assert play.directive("a") == IDLE
    # The next unaligned id is aligned at once, still by the scalars of the run.
    play.serve("b", num_unaligned=1)
    assert (play.call("a").id, play.call("a").run) == ("run-2", "old")


def test_who_has_not_taken_the_new_naming_after_a_minute_is_called_again():
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    play.align("a", "b")
    play.serve("a", num_unaligned=0, naming="run-1")
    play.rest(AlignmentPolicy.result_s, "a", "b")
    assert play.event_names == ["aligning", "aligned"]
    play.rest(1, "a", "b")
    assert play.call("b").id == "run-2"


def test_after_a_refusal_unaligned_ids_wait():
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    play.refuse("b", "b", "it has no scalar")
    assert play.directive("a") == play.directive("b") == IDLE
    play.rest(AlignmentPolicy.after_refusal_s - 1, "a", "b")
    assert play.event_names == ["aligning", "refused"]
    play.rest(1.5, "a", "b")
    assert play.event_names == ["aligning", "refused", "aligning"]
    assert play.align("a", "b")


def test_a_refusal_of_unaligned_ids_holds_up_neither_a_run_nor_a_dry_run():
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    play.refuse("b", "a")
    play.rest(5, "a", "b")
    play.dry_run("a")
    assert play.call("b").purpose is AlignmentPurpose.DRY_RUN
    play.align("a", "b")
    play.fetch("a", "b")
    play.federation.retrain(None)
    play.prepare("a", 1)
    play.prepare("b", 1)
    assert play.call("b").purpose is AlignmentPurpose.RUN


def test_a_lost_member_gives_it_up_until_it_is_back():
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    play.commit("a", "b")
    play.disconnect("b")
    assert play.events[1:] == [("given up", "run-1", "lost b: its session ended")]
    play.rest(30, "a")
    assert play.directive("a") == IDLE
    play.idle("b")
    play.serve("b", model_run="old", naming="old")
    assert play.call("a") is None, "who comes and goes must not use up everybody's day"
    play.rest(AlignmentPolicy.after_refusal_s, "a", "b")
    assert play.call("a").id == "run-2"


def test_a_wanted_run_goes_first():
    play = serving("a", "b", "c", start=StartRule(quorum=2, after_s=5))
    play.federation.retrain(3)
    play.serve("a", num_unaligned=1)
    play.rest(5, "a", "b", "c")
    assert play.events == []
    play.prepare("a", 1)
    play.prepare("b", 1)
    play.rest(6, "a", "b", "c")
    assert play.events == [("aligning", "run-1", "run, without c")]
    play.align("a", "b")
    play.ready("a", "b")
    play.rest(2)
    assert play.event_names == ["aligning", "aligned", "started"]
    play.beat("a", "b", state=State.FINISHED, run="run-1")
    play.idle("a", "b")
    # Now the model is that of the new run, of which c was no member.
    for name in ("a", "b"):
        play.serve(name, model_run="run-1", naming="run-1")
    assert play.call("a") is None
    play.serve("a", num_unaligned=1)
    assert [member.client for member in play.call("a").members] == ["a", "b"]


def test_a_run_that_is_wanted_meanwhile_begins_after_it():
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    play.federation.retrain(3)
    play.prepare("a", 1)
    play.prepare("b", 1)
    assert play.call("a").purpose is AlignmentPurpose.UNALIGNED_IDS
    play.align("a", "b")
    play.tick()
    assert play.call("a").purpose is AlignmentPurpose.RUN


def test_nobody_is_aligned_for_unaligned_ids_while_a_run_is_under_way():
    play = Play("a", "b", "c", start=StartRule(2, 0), members_of={"old": ("c",)})
    play.join("a", 1)
    play.join("b", 1)
    play.ready("a", "b")
    play.idle("c")
    play.serve("c", model_run="old", naming="old", num_unaligned=1)
    play.wait(5, "a", "b")
    assert play.event_names == ["aligning", "aligned", "started"]


def test_where_digests_are_names_nobody_is_new():
    play = serving("a", "b", scheme="hmac")
    play.serve("a", num_unaligned=1)
    play.rest(600, "a", "b")
    assert play.events == []


def test_a_wanted_run_does_not_wait_for_ever_for_unaligned_ids():
    """Who attends an alignment does not read its tables, so it has to be given up first."""
    play = serving("a", "b")
    play.serve("a", num_unaligned=1)
    play.federation.retrain(3)
    play.rest(AlignmentPolicy.yield_s - 1, "a", "b")
    assert play.event_names == ["aligning"]
    play.rest(2, "a", "b")
    assert play.events[1:] == [("given up", "run-1", "a run goes first")]
    assert play.directive("a").wanted
    play.prepare("a", 1)
    play.prepare("b", 1)
    assert play.events[2:] == [("aligning", "run-2", "run")]


def test_a_run_that_could_not_start_anyway_ends_no_alignment():
    play = serving("a", "b", roster=("a", "b", "c"))
    play.serve("a", num_unaligned=1)
    play.federation.retrain(3)
    play.rest(10 * AlignmentPolicy.yield_s, "a", "b")
    assert play.event_names == ["aligning"]
