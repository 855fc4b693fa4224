"""One process for each client, and numbers that no two processes share."""

import json

import pytest

from laser_vfl.coordinator.rules.directives import Finished, Stopped
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.registry import Registry
from laser_vfl.core.errors import MismatchError, NameTaken, NotRegistered

NOW = 1000.0


@pytest.fixture
def registry():
    return Registry(("bank", "shop"), MembershipPolicy())


def add(registry, client="bank", nonce="one"):
    return registry.add(client, nonce, f"{client}:1", True, False, NOW)


def stored(registry):
    return json.loads(json.dumps(registry.snapshot()))


def restored(registry, roster=("bank", "shop")):
    after = Registry(roster, MembershipPolicy())
    after.restore(stored(registry), NOW)
    return after


def test_a_repeated_registration_is_the_same_one(registry):
    first = add(registry)
    assert registry.known("bank", "one", NOW) is first
    assert registry.find("bank", first.incarnation) is first
    assert registry.knows(first)


def test_another_process_is_another_one(registry):
    first = add(registry)
    assert registry.known("bank", "two", NOW) is None
    second = add(registry, nonce="two")
    assert second.incarnation > first.incarnation
    assert not registry.knows(first)
    with pytest.raises(NotRegistered):
        registry.find("bank", first.incarnation)
    registry.forget(first)
    assert registry["bank"] is second, "forgetting the old one does not harm the new"


def test_a_name_is_taken_for_as_long_as_its_process_is_heard(registry):
    first = add(registry)
    assert registry.known("bank", "two", NOW) is None, "it has no session"
    first.in_session = True
    with pytest.raises(NameTaken, match="connected already, from bank:1"):
        registry.known("bank", "two", NOW + MembershipPolicy.silent_s - 0.1)
    assert registry.known("bank", "two", NOW + MembershipPolicy.silent_s) is None
    assert registry.known("bank", "one", NOW) is first


@pytest.mark.parametrize("end", ["excluded", "finished", "stopped"])
def test_who_was_left_out_or_has_a_verdict_may_register_anew(registry, end):
    first = add(registry)
    first.in_session = True
    if end == "excluded":
        first.excluded = True
    else:
        first.verdict = Finished("run-1") if end == "finished" else Stopped("run-1", "refused")
    assert registry.known("bank", "one", NOW) is None


def test_who_was_left_out_is_in_nobodys_way(registry):
    first = add(registry)
    first.in_session, first.excluded = True, True
    assert registry.known("bank", "two", NOW) is None


def test_only_the_roster_may_register(registry):
    with pytest.raises(MismatchError, match=r'"club" is not on the roster'):
        registry.known("club", "one", NOW)


def test_a_restored_registry_knows_the_same_processes(registry):
    bank, shop = add(registry), add(registry, "shop")
    bank.excluded, shop.verdict = True, Finished("run-1")
    after = restored(registry)
    assert after.known("bank", "one", NOW) is None
    assert after.find("shop", shop.incarnation).verdict == Finished("run-1")
    assert (after["bank"].address, after["bank"].has_head) == ("bank:1", True)
    assert not after["shop"].in_session
    assert add(after, nonce="two").incarnation == 3, "no number is used twice"


def test_numbers_are_not_used_again_though_their_process_is_forgotten(registry):
    registry.forget(add(registry))
    assert add(restored(registry)).incarnation == 2


def test_after_a_restart_everybody_has_time_to_come_back(registry):
    add(registry)
    found = restored(registry)["bank"]
    assert found.seen_at == found.left_at == NOW + MembershipPolicy.return_s


def test_who_is_not_on_the_roster_any_more_is_not_restored(registry):
    add(registry)
    add(registry, "shop")
    assert list(restored(registry, roster=("shop",))) == ["shop"]
