"""A run with failures, replayed from the clients' notes, against the same steps by hand."""

import copy

import pytest
import torch
from torch import nn

from laser_vfl.core.reference import Oracle
from laser_vfl.core.training.applied_steps import Applied, Loaded
from laser_vfl.core.training.learner import OptimizerSettings
from tests.support.oracle.core_federation import DIM, FEATURES, World, settings_of
from tests.support.oracle.replay import replay

EVERYONE = 0b111
WORLD = World([{0, 1, 2}] * 16, 3, {0, 2})
for models in WORLD.models.values():
    models["representation"] = nn.Sequential(
        nn.Linear(FEATURES, DIM), nn.BatchNorm1d(DIM), nn.Dropout(0.2)
    )


class Federation:
    """The same initial parameters every time."""

    def __init__(self):
        settings = settings_of()
        members = WORLD.members(settings, OptimizerSettings(name="adam", lr=0.05))
        self.learners = {k: member.learner for k, member in members.items()}
        self.oracle = Oracle(members, settings)

    def steps(self, numbers, participants=EVERYONE, appliers=None):
        for number in numbers:
            self.oracle.step(number, participants, appliers)

    def state(self, client):
        return self.learners[client].state()

    def same(self, other):
        return all(
            torch.equal(value, other.state(k)[name])
            for k in self.learners
            for name, value in self.state(k).items()
            if name != "random"
        )


def replayed(logs):
    federation = Federation()
    replay(federation.oracle, federation.learners, logs)
    return federation


def applied(steps, generation=1, participants=EVERYONE):
    return [Applied(step, generation, participants) for step in steps]


@pytest.fixture
def by_hand():
    return Federation()


def test_an_uninterrupted_run_is_the_plain_run(by_hand):
    by_hand.oracle.run()
    num_steps = by_hand.oracle.num_steps
    found = replayed({k: [Loaded(0, 1), *applied(range(num_steps))] for k in range(3)})
    assert found.same(by_hand)
    assert not found.same(Federation())


def test_a_torn_step_is_done_again_by_those_who_dropped_it(by_hand):
    by_hand.steps(range(3))
    by_hand.steps([3], EVERYONE, 0b001)
    by_hand.steps([3], 0b110)
    by_hand.steps([4, 5])
    rest = applied([4, 5], 2)
    redone = [*applied(range(3)), *applied([3], 2, 0b110), *rest]
    found = replayed({0: [*applied(range(4)), *rest], 1: redone, 2: redone})
    assert found.same(by_hand)
    whole = Federation()
    whole.steps(range(6))
    assert not found.same(whole)


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "not noted"])
def test_a_client_is_lost_in_a_step_that_another_applied(by_hand, noted):
    by_hand.steps(range(2))
    by_hand.steps([2], EVERYONE, 0b101 if noted else 0b001)
    by_hand.steps([2], 0b010)
    by_hand.steps([3, 4], 0b011)
    found = replayed(
        {
            0: [*applied(range(3)), *applied([3, 4], 2, 0b011)],
            1: [*applied(range(2)), *applied([2], 2, 0b010), *applied([3, 4], 2, 0b011)],
            2: applied(range(3 if noted else 2)),
        }
    )
    assert found.same(by_hand)


def rejoin_by_hand(by_hand, kept_at, killed_at):
    """Client 2 keeps a checkpoint, is killed, and is back at step 8 with it."""
    by_hand.steps(range(kept_at))
    kept = by_hand.state(2)
    by_hand.steps(range(kept_at, killed_at))
    by_hand.steps(range(killed_at, 8), 0b011)
    by_hand.learners[2].load_state(kept)
    by_hand.steps([8, 9])
    return kept


@pytest.mark.parametrize("generation", [None, 3])
@pytest.mark.parametrize(("kept_at", "killed_at"), [(4, 6), (6, 6), (0, 5), (5, 6)])
def test_a_client_comes_back_with_its_checkpoint(by_hand, kept_at, killed_at, generation):
    rejoin_by_hand(by_hand, kept_at, killed_at)
    stayed = [*applied(range(killed_at)), *applied(range(killed_at, 8), 2, 0b011)]
    stayed += applied([8, 9], 3)
    back = [*applied(range(killed_at)), Loaded(kept_at, generation), *applied([8, 9], 3)]
    assert replayed({0: stayed, 1: stayed, 2: back}).same(by_hand)


def test_a_client_that_comes_back_and_applies_nothing_has_its_checkpoint(by_hand):
    by_hand.steps(range(2))
    kept = by_hand.state(1)
    by_hand.steps(range(2, 4))
    by_hand.learners[1].load_state(kept)
    logs = {k: applied(range(4)) for k in range(3)}
    logs[1] = [*logs[1], Loaded(2), Loaded(2)]
    assert replayed(logs).same(by_hand)


def test_the_generation_of_a_loading_tells_which_state_a_dropped_step_saw(by_hand):
    """Client 2 is back in generation 2, and drops step 4 of it, which client 0 applied."""
    logs = {
        0: [*applied(range(4)), *applied([4], 2), *applied([5], 3)],
        1: [*applied(range(4)), *applied([4], 3, 0b110), *applied([5], 3)],
    }
    last = [*applied([4], 3, 0b110), *applied([5], 3)]
    by_hand.steps(range(2))
    kept = by_hand.state(2)
    by_hand.steps(range(2, 4))
    killed_later = copy.deepcopy(by_hand)
    by_hand.learners[2].load_state(kept)
    by_hand.steps([4], EVERYONE, 0b001)
    by_hand.steps([4], 0b110)
    by_hand.steps([5])
    assert replayed(logs | {2: [*applied(range(4)), Loaded(2, 2), *last]}).same(by_hand)

    killed_later.steps([4], EVERYONE, 0b001)
    killed_later.learners[2].load_state(kept)
    killed_later.steps([4], 0b110)
    killed_later.steps([5])
    for generation in (3, None):
        log = [*applied(range(4)), Loaded(2, generation), *last]
        assert replayed(logs | {2: log}).same(killed_later)
    assert not killed_later.same(by_hand)


def test_a_checkpoint_is_that_of_the_latest_life_that_wrote_it(by_hand):
    """All start again at 2, go another way to 6, and start again at 4 of that way."""
    by_hand.steps(range(2))
    at_two = {k: by_hand.state(k) for k in range(3)}
    for k, learner in by_hand.learners.items():
        learner.load_state(at_two[k])
    by_hand.steps(range(2, 4), 0b111)
    at_four = {k: by_hand.state(k) for k in range(3)}
    for k, learner in by_hand.learners.items():
        learner.load_state(at_four[k])
    by_hand.steps([4, 5])
    logs = {
        k: [
            *(applied(range(2))),
            *(applied(range(2, 6), 2, 0b011) if k < 2 else []),
            Loaded(2),
            *applied(range(2, 6), 3),
            Loaded(4),
            *applied([4, 5], 4),
        ]
        for k in range(3)
    }
    assert replayed(logs).same(by_hand)


def test_a_client_that_never_applied_anything_still_takes_part(by_hand):
    by_hand.steps([0], EVERYONE, 0b011)
    assert replayed({0: applied([0]), 1: applied([0])}).same(by_hand)


@pytest.mark.parametrize(
    ("logs", "said"),
    [
        ({0: applied([0]), 1: applied([0], 1, 0b011)}, "participants of step 0 of generation 1"),
        ({0: applied([0], 1, 0b110)}, "took no part"),
        ({0: applied([1, 0])}, "client 0 cannot have noted"),
        ({0: [*applied([1], 2), *applied([2], 1)]}, "client 0 cannot have noted"),
        ({0: [*applied([1]), Loaded(0), *applied([2])]}, "client 0 cannot have noted"),
        ({7: applied([0])}, "no learner"),
    ],
)
def test_logs_that_cannot_be_are_refused(logs, said):
    with pytest.raises(ValueError, match=said):
        replayed(logs)
