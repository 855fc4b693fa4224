"""Frames of several generations, taken as complete sets; never more than two of a peer."""

import threading
import time

import pytest

from laser_vfl.client.peers.frame_buffer import FrameBuffer, Interrupted
from laser_vfl.core.errors import ContractError
from laser_vfl.v1 import peer_pb2 as pb

REPRESENTATION, GRADIENT = pb.FRAME_KIND_REPRESENTATION, pb.FRAME_KIND_GRADIENT

SHOP, TELCO = 1, 2


def frame(step, *, generation=1, kind=REPRESENTATION):
    return pb.Frame(run="run-1", generation=generation, step=step, kind=kind)


@pytest.fixture
def inbox():
    """An inbox of generation 1."""
    inbox = FrameBuffer()
    inbox.begin(1)
    return inbox


class Taker(threading.Thread):
    """The training thread."""

    def __init__(self, inbox, *keys):
        super().__init__(daemon=True)
        self.inbox, self.keys, self.outcome = inbox, keys, None
        self.start()
        until = time.monotonic() + 5
        while not (inbox.waiting_for or self.outcome):
            assert time.monotonic() < until
            time.sleep(0.001)

    def run(self):
        try:
            self.outcome = self.inbox.take(self.keys)
        except BaseException as error:
            self.outcome = error

    def result(self):
        self.join(5)
        assert not self.is_alive(), "nobody has woken it"
        return self.outcome


def test_the_taker_is_woken_when_all_is_there(inbox):
    taker = Taker(inbox, (SHOP, REPRESENTATION, 4), (TELCO, REPRESENTATION, 4))
    assert inbox.waiting_for == (SHOP, TELCO)
    inbox.put(TELCO, frame(4))
    assert inbox.waiting_for == (SHOP,)
    assert taker.is_alive()
    inbox.put(SHOP, frame(4))
    assert set(taker.result()) == {(SHOP, REPRESENTATION, 4), (TELCO, REPRESENTATION, 4)}
    assert inbox.waiting_for == ()


def test_what_came_before_is_taken_at_once(inbox):
    inbox.put(SHOP, frame(4))
    assert inbox.take([(SHOP, REPRESENTATION, 4)])
    assert inbox.take([]) == {}


def test_a_lower_generation_is_dropped_and_counted(inbox):
    inbox.begin(3)
    inbox.put(SHOP, frame(4, generation=2))
    assert inbox.dropped == {"old generation": 1}
    assert inbox.has_room(SHOP, lambda: None)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_repeated_frame_is_dropped(inbox, is_taken):
    inbox.put(SHOP, frame(4))
    if is_taken:
        inbox.take([(SHOP, REPRESENTATION, 4)])
    inbox.put(SHOP, frame(4))
    assert inbox.dropped == {"repeated": 1}
    inbox.put(SHOP, frame(4, kind=GRADIENT))
    assert inbox.dropped == {"repeated": 1}, "this is another"


def test_what_came_early_is_there_when_its_generation_begins(inbox):
    inbox.put(SHOP, frame(4, generation=2))
    inbox.put(SHOP, frame(4, generation=2))
    assert inbox.dropped == {"repeated": 1}
    inbox.begin(2)
    found = inbox.take([(SHOP, REPRESENTATION, 4)])
    assert [f.generation for f in found.values()] == [2]


def test_what_is_left_of_a_generation_goes_with_it(inbox):
    inbox.put(SHOP, frame(4))
    inbox.take([(SHOP, REPRESENTATION, 4)])
    inbox.put(SHOP, frame(5))
    inbox.begin(2)
    assert inbox.dropped == {"old generation": 1}
    inbox.put(SHOP, frame(4, generation=2))
    assert inbox.take([(SHOP, REPRESENTATION, 4)]), "the step is done again"


def test_of_generations_to_come_only_the_highest_is_held(inbox):
    inbox.put(SHOP, frame(4, generation=2))
    inbox.put(SHOP, frame(4, generation=4))
    inbox.put(SHOP, frame(5, generation=3))
    inbox.put(TELCO, frame(4, generation=3))
    assert inbox.dropped == {"old generation": 2}
    inbox.begin(3)
    assert inbox.take([(TELCO, REPRESENTATION, 4)])
    inbox.begin(4)
    assert inbox.take([(SHOP, REPRESENTATION, 4)])
    assert inbox.dropped == {"old generation": 2}


def test_what_came_early_for_a_generation_that_was_skipped_is_dropped(inbox):
    inbox.put(SHOP, frame(4, generation=2))
    inbox.begin(3)
    assert inbox.dropped == {"old generation": 1}


def test_a_peer_in_a_generation_to_come_has_no_use_for_what_it_sent_before(inbox):
    inbox.put(SHOP, frame(4))
    inbox.put(TELCO, frame(4))
    inbox.put(SHOP, frame(4, generation=2))
    assert inbox.dropped == {"old generation": 1}
    assert inbox.take([(TELCO, REPRESENTATION, 4)])


def test_a_taker_survives_that_what_it_waits_for_is_withdrawn(inbox):
    """A peer may send frames of whatever generation it likes."""
    inbox.put(SHOP, frame(4))
    taker = Taker(inbox, (SHOP, REPRESENTATION, 4), (TELCO, REPRESENTATION, 4))
    inbox.put(SHOP, frame(4, generation=2))
    inbox.put(TELCO, frame(4))
    inbox.fail(Interrupted())
    assert isinstance(taker.result(), Interrupted)


@pytest.mark.parametrize("generation", [1, 2])
def test_a_peer_has_room_for_two_frames_and_hears_when_it_has_again(inbox, generation):
    resumed = []
    resume = lambda: resumed.append(True)  # noqa: E731
    for kind in (GRADIENT, REPRESENTATION):
        assert inbox.has_room(SHOP, resume)
        inbox.put(SHOP, frame(4, kind=kind, generation=generation))
    assert not inbox.has_room(SHOP, resume)
    assert inbox.has_room(TELCO, resume), "another's frames do not count"
    assert not resumed
    if generation == 2:
        inbox.begin(2)
        assert resumed.pop()
        assert not inbox.has_room(SHOP, resume)
    inbox.take([(SHOP, GRADIENT, 4)])
    assert resumed == [True]
    assert inbox.has_room(SHOP, resume)


def test_a_stop_wakes_the_taker(inbox):
    taker = Taker(inbox, (SHOP, REPRESENTATION, 4))
    inbox.fail(Interrupted())
    assert isinstance(taker.result(), Interrupted)
    with pytest.raises(Interrupted):
        inbox.take([(SHOP, REPRESENTATION, 4)])
    assert isinstance(inbox.failure, Interrupted)
    inbox.begin(2)
    assert inbox.failure is None


def test_what_is_there_is_taken_though_nothing_more_will_come(inbox):
    inbox.put(SHOP, frame(4))
    inbox.fail(Interrupted())
    assert inbox.take([(SHOP, REPRESENTATION, 4)])


def test_the_first_reason_counts(inbox):
    inbox.fail(ContractError("shop broke the contract"))
    inbox.fail(Interrupted())
    with pytest.raises(ContractError):
        inbox.take([(SHOP, REPRESENTATION, 4)])
