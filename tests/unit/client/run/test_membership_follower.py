"""A client's standing in a run: what it may do after what it was told, in whatever order."""

import pytest

from laser_vfl.client.run.membership_follower import MembershipFollower
from laser_vfl.client.session.member_view import MemberView, Peer

ME = Peer(0, "bank", 7, "bank:1")


def view(generation, next_step=0):
    return MemberView("run-1", generation, ME, (), (), ((0, next_step),), 0)


@pytest.fixture
def membership():
    """A client that trains by its first view."""
    membership = MembershipFollower()
    membership.hear(1, 0, view(1))
    membership.begin()
    return membership


def test_from_a_first_view_to_a_second():
    membership = MembershipFollower()
    assert not membership.may_begin
    membership.hear(1, 0, view(1))
    assert membership.may_begin
    assert membership.begin().generation == 1
    assert (membership.running, membership.must_stop, membership.stopped) == (True, False, 0)
    membership.hear(1, 1, view(1))
    assert membership.must_stop
    assert membership.stopped == 0, "not before it has"
    membership.ended(next_step=12)
    assert (membership.stopped, membership.next_step) == (1, 12)
    assert not membership.may_begin, "not the same one again"
    membership.hear(2, 0, view(2, next_step=12))
    assert membership.may_begin
    membership.begin()
    assert (membership.stopped, membership.must_stop, membership.next_step) == (0, False, 12)


def test_a_view_says_where_a_joiner_begins_but_never_goes_back():
    membership = MembershipFollower(next_step=5)
    membership.hear(3, 0, view(3, next_step=9))
    membership.begin()
    assert membership.next_step == 9
    membership.ended(next_step=11)
    membership.hear(4, 0, view(4, next_step=10))
    membership.begin()
    assert membership.next_step == 11


def test_a_newer_view_is_a_stop_too(membership):
    """The stop itself may have been lost."""
    membership.hear(2, 0, view(2))
    assert membership.must_stop
    assert not membership.may_begin, "not before the old one has ended"
    membership.ended(next_step=3)
    assert membership.may_begin


def test_who_is_missing_from_a_view_that_is_being_stopped_registers_anew(membership):
    """It was away when the view came, and when the stop came; nobody waits for its answer."""
    membership.hear(2, 2, None)
    assert membership.must_stop
    assert not membership.is_excluded, "not before the old one has ended"
    membership.ended(next_step=3)
    assert membership.is_excluded


def test_who_was_left_out_before_it_heard_of_its_view_registers_anew():
    membership = MembershipFollower()
    membership.hear(2, 0, None)
    assert not membership.is_excluded, "who comes new is not in the view either"
    membership.hear(2, 0, None, left_out=True)
    assert membership.is_excluded
    membership.renew()
    membership.hear(2, 0, None)
    assert not membership.is_excluded


def test_what_is_not_newer_than_the_last_stop_is_ignored(membership):
    membership.hear(2, 2, view(2))
    membership.ended(next_step=3)
    assert membership.stopped == 2
    for generation in (1, 2):
        membership.hear(generation, 0, view(generation))
        assert not membership.may_begin
        assert membership.stopped == 2
    membership.hear(3, 0, view(3))
    assert membership.may_begin


def test_a_view_that_was_stopped_before_it_began_is_never_begun(membership):
    membership.hear(2, 0, view(2))
    membership.hear(2, 2, view(2))
    membership.ended(next_step=3)
    assert not membership.may_begin
    assert membership.stopped == 2


def test_of_two_views_the_higher_one_is_begun_whatever_comes_first(membership):
    membership.hear(3, 0, view(3))
    membership.hear(2, 0, view(2))
    membership.ended(next_step=3)
    assert membership.begin().generation == 3


def test_hearing_the_same_again_changes_nothing(membership):
    for _ in range(3):
        membership.hear(1, 0, view(1))
        assert membership.running
        assert not membership.must_stop


def test_a_client_that_is_not_in_a_newer_view_is_out_once_it_has_ended(membership):
    membership.hear(2, 0, None)
    assert membership.must_stop
    assert not membership.is_excluded
    membership.ended(next_step=3)
    assert membership.is_excluded
    assert not membership.may_begin


def test_an_older_view_without_this_client_excludes_it_not(membership):
    membership.hear(1, 0, None)
    membership.ended(next_step=3)
    assert not membership.is_excluded


def test_who_has_never_been_a_member_is_not_excluded_but_joins():
    membership = MembershipFollower()
    for generation in (4, 5):
        membership.hear(generation, generation, None)
        assert not membership.is_excluded
        assert membership.stopped == 0
    membership.hear(6, 0, view(6))
    assert membership.may_begin


def test_who_registers_anew_keeps_what_it_has_learnt(membership):
    membership.hear(2, 0, None)
    membership.ended(next_step=30)
    membership.renew()
    assert not membership.is_excluded
    assert (membership.stopped, membership.next_step) == (0, 30)
    membership.hear(2, 2, None)
    assert not membership.may_begin
    membership.hear(3, 0, view(3, next_step=30))
    assert membership.may_begin


def test_who_leaves_has_stopped_and_begins_nothing_more(membership):
    membership.ended(next_step=3)
    membership.leave()
    assert (membership.leaving, membership.stopped) == (True, 1)
    membership.hear(2, 0, view(2))
    assert not membership.may_begin


def test_who_leaves_when_a_view_has_just_come_has_stopped_that_too(membership):
    membership.hear(1, 1, view(1))
    membership.ended(3)
    membership.hear(2, 0, view(2))
    membership.leave()
    assert (membership.stopped, membership.may_begin) == (2, False)
    membership.hear(3, 0, view(3))
    assert (membership.stopped, membership.may_begin) == (3, False)
