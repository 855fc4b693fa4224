"""Attacks on a federation that serves: each ends as the table says, and does no harm."""

import socket
import time
from contextlib import ExitStack

import at_the_door
import pytest
from fortress import DOORS, Fortress
from results import Results


@pytest.mark.parametrize("name", at_the_door.DOING)
def test_an_attack_ends_as_it_should(name: str, fortress: Fortress, results: Results) -> None:
    found = at_the_door.doing(name, fortress)
    fortress.check_unharmed()
    results.note(name, found)


@pytest.mark.parametrize(
    ("num", "for_s"), [(100, 1.0), pytest.param(500, 30.0, marks=pytest.mark.variant)]
)
def test_silent_connections_are_in_nobodys_way(
    num: int, for_s: float, fortress: Fortress, results: Results
) -> None:
    """At every door, half of them after a TLS handshake.

    What so many connections take stays with the allocator, so that memory is measured after two
    rounds: a third adds nothing to speak of.
    """
    for _ in range(2):
        _hold(num, 0.0, fortress)
    fortress.measure()
    _hold(num, for_s, fortress)
    fortress.check_unharmed()
    results.note("silent connections", "predictions go on")


def _hold(num: int, for_s: float, fortress: Fortress) -> None:
    """Open connections, and have all clients predict while they are open."""
    with ExitStack() as held:
        for door in DOORS:
            host, _, port = fortress.address(door).rpartition(":")
            for _ in range(num // 2):
                held.enter_context(socket.create_connection((host, int(port))))
                held.enter_context(at_the_door.handshake(fortress, door))
        give_up_at = time.monotonic() + for_s
        fortress.check_serves()
        while time.monotonic() < give_up_at:
            fortress.check_serves()
