"""Who takes part in a run under way: who is left out, who is not, and how somebody comes in."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.coordinator.rules.directives import Finished, LinkReport, State
from laser_vfl.coordinator.rules.membership.failure_detector import without_cuts
from laser_vfl.coordinator.rules.membership.membership import Membership
from laser_vfl.coordinator.rules.membership.view_change import LEFT, DepartureKind
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from tests.support.fakes.simulated_federation import TIMEOUT_S, Play, started

STEP_S = 20.0
"""The deadline of a step, longer than any other."""


def steps(play):
    return {member.client: member.next_step for member in play.view.members}


def down(play, name, for_s=0.0):
    """What a client says that has no stream to another."""
    return {play.clients[name].incarnation: LinkReport(False, for_s)}


def late(*names):
    """What a client says that has waited past the deadline."""
    return {"waiting_for": names, "phase_s": STEP_S}


def keep_saying(play, seconds, **says):
    """Let time pass while members say whom they wait for, if for anybody, and at which step."""
    since = play.now
    while play.now < since + seconds + 1:
        for name, (other, step) in says.items():
            phase_s = play.now - since if other else 1.0
            waiting_for = tuple(filter(None, [other]))
            play.train(name, next_step=step, waiting_for=waiting_for, phase_s=phase_s)
        if play.stop:
            return
        play.now += 0.5
        play.tick()


def without_c(*roster, **keys):
    """A run of which a and b are left; c could come back."""
    play = started(*(roster or ("a", "b", "c")), **keys)
    play.federation.gone(play.clients["c"], "")
    play.live(1, a=7, b=9)
    assert play.view.clients == ("a", "b")
    return play


# Who is gone.


def test_a_crash_is_noticed_at_once_when_a_peer_has_lost_it_too():
    play = started("a", "b", "c")
    play.disconnect("b")
    play.train("a", links=down(play, "b"))
    play.train("c")
    assert play.stop == 0, "it may have lost its network for a moment"
    play.now += MembershipPolicy.away_s
    play.train("a", links=down(play, "b"))
    assert play.stop == 1
    play.answer(a=4, c=5)
    assert steps(play) == {"a": 4, "c": 5}
    assert play.departures == [("b", "its connection was cut")]


def test_without_a_complaint_a_broken_session_has_its_time():
    play = started("a", "b")
    play.disconnect("b")
    play.wait(TIMEOUT_S - 0.5, "a")
    assert play.stop == 0
    play.wait(0.5, "a")
    assert play.stop == 1


def test_a_client_that_hangs_is_gone_when_it_is_waited_for_in_vain():
    play = started("a", "b", step_timeout_s=STEP_S)
    play.now += MembershipPolicy.silent_s - 1
    play.train("a", **late("b"))
    assert play.stop == 0
    play.now += 1
    play.train("a", **late("b"))
    assert play.stop == 1
    play.wait(MembershipPolicy.away_s, "a", stopped=1)
    assert play.departures == [("b", "it was silent for 4 s")]


def test_who_does_not_answer_the_stop_is_given_up():
    play = started("a", "b", "c")
    play.federation.gone(play.clients["c"], "")
    play.tick()
    play.wait(TIMEOUT_S, "a", stopped=1)
    assert play.view.clients == ("a",)
    assert play.departures == [("b", "it was silent for 10 s"), ("c", "it stopped")]


# Who is slow.


def test_a_slow_client_is_left_out_only_if_the_others_are_enough():
    for keys, stop in (({}, 1), ({"on_lost": "wait"}, 0), ({"quorum": 2}, 0)):
        play = started("a", "b", step_timeout_s=STEP_S, **keys)
        play.train("a", **late("b"))
        play.train("b", phase_s=STEP_S)
        assert play.stop == stop, keys


def test_when_all_become_slow_the_first_to_answer_are_waited_for():
    """Nobody is given up for nobody; it is a slow machine, and what was learnt is not lost."""
    play = started("a", "b", "c", step_timeout_s=STEP_S)
    for name in ("a", "b"):
        play.train(name, phase_s=STEP_S - 1)
    play.train("c", phase_s=STEP_S)
    assert play.stop == 1
    for name in ("a", "b", "c"):
        play.train(name, phase_s=STEP_S + 1)
    assert play.view.generation == 1
    play.answer(b=4)
    assert steps(play) == {"b": 4}


def test_of_a_chain_only_the_one_who_computes_is_to_blame():
    play = started("a", "b", "c", step_timeout_s=STEP_S)
    play.train("a", **late("b"))
    play.train("b", **late("c"))
    assert play.stop == 0
    play.train("c", phase_s=STEP_S)
    play.answer(a=4, b=4)
    assert play.view.clients == ("a", "b")
    assert play.departures == [("c", "it has been at one step for 20 s")]


def test_who_ran_ahead_and_waits_long_for_one_that_makes_progress_has_no_complaint():
    play = started("a", "b", step_timeout_s=STEP_S)
    play.train("b", next_step=3, phase_s=1)
    play.train("a", next_step=9, **late("b"))
    assert play.stop == 0


# Who cannot reach whom.


@pytest.mark.parametrize(
    ("cut", "out"),
    [(["ab"], "b"), (["bc"], "c"), (["ab", "bc"], "b"), (["ab", "ac"], "a")],
    ids=str,
)
def test_the_largest_set_without_a_cut_stays_and_of_several_the_first(cut, out):
    play = started("a", "b", "c")
    links = {}
    for one, other in cut:
        links.setdefault(one, {}).update(down(play, other, MembershipPolicy.cut_s))
    for name, reported in links.items():
        play.train(name, links=reported)
    assert play.stop == 1
    play.answer(a=4, b=4, c=4)
    assert set(play.view.clients) == {"a", "b", "c"} - {out}
    [(name, reason)] = play.departures
    assert name == out
    assert "cannot reach each other" in reason


def test_a_stream_may_be_down_for_a_while():
    play = started("a", "b")
    play.train("a", links=down(play, "b", MembershipPolicy.cut_s - 1))
    play.train("b")
    assert play.stop == 0


@pytest.mark.parametrize("who", ["a", "b"])
def test_who_has_not_begun_builds_its_models_and_is_not_cut_off(who):
    play = started("a", "b", step_timeout_s=STEP_S)
    other = {"a": "b", "b": "a"}[who]
    play.beat(who, state=State.READY, run="run-1")
    play.train(other, links=down(play, who, STEP_S - 1))
    assert play.stop == 0
    play.train(who, links=down(play, other, 1.0))
    play.train(other, links=down(play, who, STEP_S + 1))
    assert play.stop == 0, "it has just begun to dial"
    play.train(who, links=down(play, other, MembershipPolicy.cut_s))
    assert play.stop == 1


def test_who_never_begins_is_not_waited_for_for_ever():
    play = started("a", "b", step_timeout_s=STEP_S)
    play.beat("b", state=State.READY, run="run-1")
    play.train("a", links=down(play, "b", STEP_S))
    assert play.stop == 1


def test_two_that_wait_for_each_other_past_the_deadline_are_cut_though_their_streams_look_well():
    play = started("a", "b", "c", step_timeout_s=STEP_S)
    play.train("c", "a", links=play.links("a"))
    play.train("a", **late("b"))
    play.train("b", **late("a"))
    play.answer(a=4, b=4, c=4)
    assert play.view.clients == ("a", "c")


def test_below_quorum_a_cut_pair_stays_and_tries_again_after_a_while():
    play = started("a", "b", quorum=2)
    cut = {"links": down(play, "b", MembershipPolicy.cut_s)}
    play.train("a", **cut)
    play.answer(a=4, b=4)
    assert (play.view.generation, play.view.clients) == (2, ("a", "b"))
    assert play.departures == []
    for _ in range(int(MembershipPolicy.cut_s) - 1):
        play.now += 1
        play.train("a", **cut)
        play.train("b")
        assert play.stop == 0
    play.now += 1
    play.train("a", **cut)
    assert play.stop == 2


# Nobody is to blame.


def test_a_frame_that_was_lost_means_the_same_members_anew():
    play = started("a", "b", step_timeout_s=STEP_S)
    play.train("b", next_step=5, phase_s=1)
    play.train("a", next_step=4)
    keep_saying(play, STEP_S + MembershipPolicy.stranded_s, a=("b", 4), b=("", 5))
    play.answer(a=4, b=5)
    assert (play.view.generation, steps(play)) == (2, {"a": 4, "b": 5})
    assert play.departures == []


def test_a_client_whose_last_word_is_older_than_its_peers_does_not_wait_in_vain():
    play = started("a", "b", step_timeout_s=STEP_S, on_lost="wait")
    for step in range(5):
        play.train("a", next_step=step, **late("b"))
        play.now += 0.9
        play.train("b", next_step=step + 1, phase_s=0)
        play.now += 0.9
    assert play.stop == 0


def test_all_wait_in_a_circle_and_begin_anew():
    play = started("a", "b", "c", step_timeout_s=STEP_S)
    keep_saying(play, STEP_S + MembershipPolicy.stranded_s, a=("b", 4), b=("c", 4), c=("a", 4))
    play.answer(a=4, b=4, c=4)
    assert (play.view.generation, len(play.view.members)) == (2, 3)


def test_a_stopped_member_starts_a_change():
    """The coordinator may have been killed in the middle of the last one."""
    play = started("a", "b")
    play.train("a", stopped=1, next_step=4)
    assert play.stop == 1
    play.answer(b=5)
    assert (play.view.generation, steps(play)) == (2, {"a": 4, "b": 5})


def test_who_stops_the_others_again_and_again_goes_itself():
    play = started("a", "b")
    for generation in range(1, 7):
        assert play.view.clients == ("a", "b")
        play.train("a", stopped=generation, next_step=4)
        play.answer(b=5)
    assert play.view.clients == ("b",)
    assert play.departures == [("a", "it has stopped the others 6 times")]


@pytest.mark.parametrize("rule", [{"quorum": 2}, {"on_lost": "wait"}], ids=str)
def test_nobody_goes_for_stopping_the_others_where_they_need_it(rule):
    """Otherwise they would wait for it, and it, which is a member still, would not come back."""
    play = started("a", "b", **rule)
    for generation in range(1, 10):
        play.train("a", stopped=generation, next_step=4)
        play.answer(b=5)
        assert (play.view.generation, play.view.clients) == (generation + 1, ("a", "b"))


def test_who_was_told_to_stop_before_the_coordinator_was_killed_is_not_blamed_for_it():
    play = started("a", "b")
    for generation in range(1, 10):
        play.restart()
        play.train("a", stopped=generation, next_step=4)
        play.answer(b=5)
        assert (play.view.generation, play.view.clients) == (generation + 1, ("a", "b"))


def test_of_a_cut_pair_goes_who_was_cut_off_from_another_before():
    """Or somebody who comes first could have the others left out one by one."""
    play = started("a", "b", "c")
    play.train("a", links=down(play, "b", MembershipPolicy.cut_s))
    play.answer(a=4, b=4, c=4)
    assert play.view.clients == ("a", "c")
    play.train("a", links=down(play, "c", MembershipPolicy.cut_s))
    play.answer(a=4, c=4)
    assert play.view.clients == ("c",)
    assert play.departures[-1] == ("a", "it and c cannot reach each other")


def test_late_heartbeats_of_an_old_generation_change_nothing():
    play = started("a", "b", step_timeout_s=STEP_S)
    play.train("a", stopped=1, next_step=4)
    play.answer(b=5)
    for says in ({}, {"phase_s": STEP_S}, {"next_step": 99}):
        play.train("a", **{"stopped": 1, "next_step": 4, **says})
        assert (play.view.generation, play.stop) == (2, 0)


# Who comes in.


def test_a_joiner_waits_until_it_and_all_members_have_streams_to_each_other():
    play = without_c()
    play.live(1, a=7, b=9)
    play.come_back("c")
    assert play.directive("c").joiners == ()
    play.ready("c")
    assert [j.client for j in play.directive("a").joiners] == ["c"]
    links = {name: play.links(name) for name in "abc"}
    for name, state in (("c", State.READY), ("a", State.RUNNING)):
        play.beat(name, state=state, run="run-1", links=links[name])
        assert play.stop == 0
    play.train("b", links=links["b"])
    assert play.stop == 2


@pytest.mark.parametrize(("own", "first"), [(3, 7), (8, 8)])
def test_a_joiner_begins_where_it_is_or_where_the_first_of_the_others_is(own, first):
    play = without_c()
    play.come_back("c")
    play.live(2, a=7, b=9, c=own)
    assert play.view.generation == 3
    assert steps(play) == {"a": 7, "b": 9, "c": first}


def test_a_joiner_that_is_cut_from_a_member_stays_outside_though_it_is_first_in_the_roster():
    play = without_c("c", "a", "b")
    play.cuts = [{"c", "b"}]
    play.come_back("c")
    play.live(2 * MembershipPolicy.cut_s, a=7, b=9, c=0)
    assert play.view.clients == ("a", "b")
    play.cuts = []
    play.live(1, a=7, b=9, c=0)
    assert play.view.clients == ("c", "a", "b")


def test_each_exclusion_doubles_the_wait():
    play = started("a", "c")
    for wait_s in (0.5, 1.0, 2.0, 4.0):
        play.federation.gone(play.clients["c"], "")
        play.live(1, a=4)
        excluded_at = play.now
        play.come_back("c")
        while not play.directive("a").joiners:
            play.live(0.5, a=4, c=4)
        assert play.now - excluded_at == wait_s
        play.live(1, a=4, c=4)
        assert play.view.clients == ("a", "c")


def away_s(play, name):
    """Let a member leave and start again at once; return how long the others are without it."""
    play.train(name, leaving=True, stopped=play.view.generation, next_step=4)
    play.live(1, a=4)
    assert play.departures[-1] == (name, "it left")
    left_at = play.now
    play.come_back(name)
    while name not in play.view.clients:
        play.live(0.5, a=4, **{name: 4})
    return play.now - left_at


def test_who_leaves_and_comes_back_all_the_time_waits_twice_as_long_each_time():
    play = started("a", "c")
    at_once = max(away_s(play, "c") for _ in range(MembershipPolicy.free_visits))
    assert at_once <= 1.5, "so an operator restarts a daemon"
    waits = [away_s(play, "c") for _ in range(9)]
    assert waits == sorted(waits)
    assert waits[6] >= 32.0 - 1.0
    assert waits[8] >= MembershipPolicy.longest_rejoin_s - 1.0


def test_who_restarts_its_daemon_now_and_then_never_waits():
    play = started("a", "c")
    for _ in range(3 * MembershipPolicy.free_visits):
        assert away_s(play, "c") <= 1.5
        play.live(MembershipPolicy.visits_within_s / MembershipPolicy.free_visits, a=4, c=4)


def test_who_makes_everybody_stop_for_it_and_does_not_come_in_waits_too():
    """It says that its streams are up, and that they are down as soon as all have stopped."""
    play = without_c()
    play.come_back("c")
    until, generation = play.now + 600.0, play.view.generation
    while play.now < until:
        play.now += 0.5
        for name in "cacbc":
            play.cuts = [{"a", "c"}, {"b", "c"}] if play.stop else []
            play.heed(name, 9)
        play.tick()
    assert "c" not in play.view.clients
    assert play.view.generation - generation < 25


def test_a_process_that_was_left_out_has_to_register_anew():
    play = started("a", "b", step_timeout_s=STEP_S)
    play.train("a", **late("b"))
    play.train("b", phase_s=STEP_S)
    play.answer(a=4)
    assert play.clients["b"].excluded
    assert play.directive("b").view.clients == ("a",), "it hears of it"
    play.live(3, a=4, b=4)
    assert play.view.clients == ("a",)
    before = play.clients["b"].incarnation
    play.clients["b"] = play.register("b")
    assert play.clients["b"].incarnation > before
    play.connect("b")
    play.live(1, a=4, b=4)
    assert play.view.clients == ("a", "b")


# Who leaves, and who is waited for.


@pytest.mark.parametrize("on_lost", ["continue", "wait"])
def test_who_leaves_is_not_waited_for(on_lost):
    play = started("a", "b", on_lost=on_lost)
    play.train("a", leaving=True)
    assert play.stop == 1
    play.train("a", leaving=True, stopped=1, next_step=4)
    assert play.view.generation == 1
    play.answer(b=5)
    assert steps(play) == {"b": 5}
    assert play.departures == [("a", "it left")]
    play.come_back("a")
    play.live(1, a=4, b=5)
    assert play.view.clients == ("a", "b"), "nor does it have to wait"


def test_who_has_left_is_not_waited_for_though_it_could_not_wait_for_the_others():
    play = started("a", "b", on_lost="wait")
    play.train("b", leaving=True, stopped=1, next_step=4)
    play.federation.gone(play.clients["b"], "it was stopped")
    play.answer(a=5)
    assert steps(play) == {"a": 5}
    assert play.departures == [("b", "it left")]


def test_who_only_says_that_it_has_left_is_waited_for_like_everybody_who_is_lost():
    """What a client says on its way out is its own text, and no rule follows from it."""
    play = started("a", "b", on_lost="wait")
    play.federation.gone(play.clients["b"], LEFT.reason)
    play.live(60, a=4)
    assert (play.view.generation, play.directive("a").waiting_for) == (1, ("b",))
    play = started("a", "b")
    play.federation.gone(play.clients["b"], LEFT.reason)
    play.live(2, a=4)
    assert play.departures == [("b", LEFT.reason)]
    assert [gone.client for gone in play.membership.excluded] == ["b"]


def left_and_lost():
    """A run that one member has left, after which another was lost with the same words."""
    play = started("a", "b", "c")
    play.train("a", leaving=True)
    play.train("a", leaving=True, stopped=1, next_step=4)
    play.answer(b=5, c=5)
    play.federation.gone(play.clients["c"], LEFT.reason)
    play.live(2, b=6)
    return play


def test_how_a_member_went_is_known_after_a_restart_of_the_coordinator():
    play = left_and_lost()
    kinds = [DepartureKind.LEFT, DepartureKind.LOST]
    assert [gone.kind for gone in play.membership.departures] == kinds
    play.restart()
    assert [gone.kind for gone in play.membership.departures] == kinds


def test_how_a_member_went_is_told_by_the_reason_in_a_state_of_the_release_before():
    play = left_and_lost()
    stored = play.membership.snapshot()
    assert stored.pop("departure_kinds") == ["left", "lost"]
    stored["departures"][1]["reason"] = "it was silent for 4 s"
    restored = Membership.restore(("a", "b", "c"), MembershipPolicy(), stored)
    kinds = [DepartureKind.LEFT, DepartureKind.LOST]
    assert [gone.kind for gone in restored.departures] == kinds


def test_the_release_before_reads_the_departures_of_this_one():
    for stored in left_and_lost().membership.snapshot()["departures"]:
        assert set(stored) == {"client", "generation", "reason", "at"}


@pytest.mark.parametrize("rule", [{"quorum": 3}, {"on_lost": "wait"}], ids=str)
def test_without_enough_members_a_run_stays_stopped_and_says_for_whom(rule):
    play = started("a", "b", "c", **rule)
    play.federation.gone(play.clients["b"], "the disk is full")
    play.live(60, a=4, c=5)
    assert (play.view.generation, play.stop) == (1, 1)
    assert play.directive("a").waiting_for == ("b",)
    play.come_back("b")
    play.live(1, a=4, b=2, c=5)
    assert steps(play) == {"a": 4, "b": 4, "c": 5}
    assert play.directive("a").waiting_for == ()


def test_with_wait_a_silent_member_may_come_back_as_it_is():
    play = started("a", "b", on_lost="wait")
    play.live(2 * TIMEOUT_S, a=4)
    assert play.directive("a").waiting_for == ("b",)
    play.live(1, a=4, b=5)
    assert (play.view.generation, steps(play)) == (2, {"a": 4, "b": 5})
    assert play.departures == []


# Checkpoints and the end.


def test_a_checkpoint_is_complete_when_every_member_has_it_or_joined_after_it():
    play = without_c()
    play.train("a", checkpoints=(2, 4, 6))
    assert play.directive("a").complete == 0
    play.train("b", checkpoints=(2, 4))
    assert play.directive("a").complete == 4
    play.come_back("c")
    play.live(1, a=7, b=9, c=0)
    assert steps(play)["c"] == 7
    play.train("a", "b", checkpoints=(6, 8))
    assert play.directive("a").complete == 6, "c has joined after it"
    play.train("c", checkpoints=(8,))
    assert play.directive("a").complete == 8


def test_who_has_finished_stays_for_those_that_need_it_and_answers_stops():
    play = started("a", "b", "c")
    play.beat("a", state=State.FINISHED, run="run-1", next_step=9)
    play.federation.gone(play.clients["c"], "")
    play.tick()
    play.beat("a", state=State.FINISHED, run="run-1", stopped=1, next_step=9)
    play.answer(b=8)
    assert steps(play) == {"a": 9, "b": 8}
    play.beat("a", "b", state=State.FINISHED, run="run-1", next_step=9)
    assert play.directive("a") == Finished("run-1")


def test_a_run_of_one_goes_on():
    play = Play("a")
    play.join("a", 1)
    play.ready("a")
    play.train("a", phase_s=1e6)
    play.live(60, a=4)
    assert play.view.generation == 1


@given(st.integers(1, 7), st.sets(st.frozensets(st.integers(0, 6), min_size=2, max_size=2)))
def test_the_largest_set_without_a_cut_pair_is_kept(num, pairs):
    names = [f"c{k}" for k in range(num)]
    cuts = {frozenset(f"c{k}" for k in pair) for pair in pairs if max(pair) < num}
    sets = [s for size in range(num, -1, -1) for s in combinations(names, size)]
    whole = [s for s in sets if not any(pair.issubset(s) for pair in cuts)]
    assert tuple(without_cuts(names, cuts)) == whole[0]


def test_many_cut_pairs_are_settled_at_once():
    names = [f"c{k:02d}" for k in range(64)]
    cuts = {frozenset((names[k], names[k + 1])) for k in range(0, 64, 2)}
    kept = without_cuts(names, cuts)
    assert len(kept) == 32
    assert not any(pair.issubset(kept) for pair in cuts)
