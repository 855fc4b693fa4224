"""A run of clients who know each other's people aligns those alone who are new since."""

import numpy as np
import pytest

from laser_vfl.core.alignment_purpose import AlignmentPurpose
from laser_vfl.core.errors import ContractError
from tests.support.fakes.simulated_federation import Play, commitment, digests


def retrained(*members, scheme="ecdh", names=None, known=None):
    """A federation that serves a model of some run and is called to the next one."""
    play = Play(*members, members_of={"old": known or members}, is_obliging=False, scheme=scheme)
    play.idle(*members)
    play.federation.retrain(None)
    for name in members:
        play.serve(name, model_run="old", naming=(names or {}).get(name, "old"))
    for name in members:
        play.prepare(name, 1, 2)
    play.tick()
    return play


def test_a_run_of_the_members_of_the_last_one_uses_its_scalars():
    play = retrained("a", "b")
    call = play.call("a")
    assert (call.id, call.purpose, call.run) == ("run-1", AlignmentPurpose.RUN, "old")


@pytest.mark.parametrize(
    "keys",
    [
        {"names": {"b": "another"}},
        {"names": {"a": "", "b": ""}},
        {"known": ("a", "b", "c")},
        {"scheme": "hmac"},
    ],
    ids=["other names", "no names", "other members", "digests"],
)
def test_otherwise_everybody_is_aligned_anew(keys):
    play = retrained("a", "b", **keys)
    call = play.call("a")
    assert (call.id, call.purpose, call.run) == ("run-1", AlignmentPurpose.RUN, "run-1")


def test_who_was_aligned_before_is_submitted_with_who_is_new():
    play = retrained("a", "b")
    play.alignment("a").commit(commitment("a", digests(2), num_known=1))
    play.alignment("b").commit(commitment("b", digests(), num_known=1))
    in_train = np.zeros(2, np.uint8)
    with pytest.raises(ContractError, match=r"a committed to 1 .* and submitted 0"):
        play.alignment("a").submit("a", "serve", digests(), in_train[:0])
    play.alignment("a").submit("a", "serve", digests(1, 2), in_train)
    play.alignment("b").submit("b", "serve", digests(1), in_train[:1])
    assert play.group()
    assert play.federation.run.id == "run-1"
    assert [(g.observed, g.size) for g in play.outcome("a")["train"].groups] == [(1, 1), (3, 1)]


def test_who_submits_more_of_before_than_it_said_is_refused():
    play = retrained("a", "b")
    play.alignment("a").commit(commitment("a", digests(), num_known=1))
    play.alignment("b").commit(commitment("b", digests(), num_known=1))
    two = digests(1, 2), np.zeros(2, np.uint8)
    with pytest.raises(ContractError, match="a committed to 0 points, and 1 of before"):
        play.alignment("a").submit("a", "serve", *two)


def test_nobody_is_of_before_where_all_are_aligned_anew():
    play = retrained("a", "b", names={"b": "another"})
    with pytest.raises(ContractError, match="based on none"):
        play.alignment("a").commit(commitment("a", digests(1), num_known=1))


def test_after_a_refusal_the_next_run_is_aligned_anew():
    play = retrained("a", "b")
    play.refuse("a", "a", "it has no scalar")
    play.idle("a", "b")
    for name in ("a", "b"):
        play.serve(name, model_run="old", naming="old")
    play.federation.retrain(None)
    for name in ("a", "b"):
        play.prepare(name, 1, 2)
    play.rest(120, "a", "b")
    call = play.call("a")
    assert call.id == call.run != "run-1"
