"""Attacks on a federation that serves: each ends as the table says, and does no harm."""

import socket
import time
from contextlib import ExitStack

import pytest
import serving_attacks
from attacked_federation import DOORS, AttackedFederation

from tests.support.attacks.attack_results import Results

SLOW = ("trickle",)
"""Takes twelve seconds, in which a server has to lose its patience."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in SLOW else [pytest.mark.core])
        for name in serving_attacks.DOING
    ],
)
def test_an_attack_ends_as_it_should(
    name: str, attacked: AttackedFederation, results: Results
) -> None:
    found = attacked.after(lambda: serving_attacks.doing(name, attacked))
    results.note(name, found)


@pytest.mark.parametrize(
    ("num", "for_s"), [pytest.param(100, 1.0, marks=pytest.mark.core), (500, 30.0)]
)
def test_silent_connections_are_in_nobodys_way(
    num: int, for_s: float, attacked: AttackedFederation, results: Results
) -> None:
    """At every door, half of them after a TLS handshake.

    What so many connections take stays with the allocator, so that memory is measured after two
    rounds: a third adds nothing to speak of.
    """
    for _ in range(2):
        _hold(num, 0.0, attacked)
    attacked.measure()
    _hold(num, for_s, attacked)
    attacked.check_unharmed()
    results.note("silent connections", "predictions go on")


def _hold(num: int, for_s: float, attacked: AttackedFederation) -> None:
    """Open connections, and have all clients predict while they are open."""
    with ExitStack() as held:
        for door in DOORS:
            host, _, port = attacked.address(door).rpartition(":")
            for _ in range(num // 2):
                held.enter_context(socket.create_connection((host, int(port))))
                held.enter_context(serving_attacks.handshake(attacked, door))
        give_up_at = time.monotonic() + for_s
        attacked.check_serves()
        while time.monotonic() < give_up_at:
            attacked.check_serves()
