"""The whole table of who may call what, with real certificates of every party at every door."""

import pytest
from attacked_federation import DOORS, AttackedFederation, outcome

from laser_vfl.security.access import ACCESS, Party
from tests.support.attacks.attack_results import Results
from tests.support.attacks.every_call import METHODS, call
from tests.support.daemons.authorities import Tls, forge

pytestmark = pytest.mark.core

GARBAGE = b"\xff" * 8
"""It is read only after the door, and asks for nothing."""

NOBODYS = {"/grpc.health.v1.Health/List", "/grpc.health.v1.Health/Watch"}
"""What the library of the health service brings along, and nobody needs."""

PARTIES: dict[str, dict[str, Party | None]] = {
    # what a certificate is at each door: the coordinator's, and both of bank
    "coordinator": {"coordinator": "owner", "bank": "coordinator"},
    "bank": {"coordinator": "client", "bank": "owner"},
    "shop": {"coordinator": "client", "bank": "client"},
    "tester": {"coordinator": "operator", "bank": "operator"},
    "bank/crm": {"coordinator": None, "bank": "application"},
    "shop/crm": {"coordinator": None, "bank": None},
    "somebody": {"coordinator": None, "bank": None},
}


def shown_by(attacked: AttackedFederation, who: str) -> Tls:
    """Return a certificate; somebody is a client of another federation."""
    if who != "somebody":
        return attacked.authority.issue(who)
    signer = attacked.authority.of["shop"]
    return forge(attacked.directory, signer, uris=["spiffe://other/client/shop"])


def test_every_call_that_there_is_has_a_rule() -> None:
    every = {path for methods in METHODS.values() for path in methods}
    assert every - set(ACCESS) == NOBODYS


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("who", PARTIES)
def test_everybody_may_call_what_the_table_says(
    who: str, door: str, attacked: AttackedFederation, results: Results
) -> None:
    party = PARTIES[who]["coordinator" if door == "coordinator" else "bank"]
    with attacked.door(door, shown_by(attacked, who)) as channel:
        for path in METHODS[door]:
            is_allowed = path not in NOBODYS and party in ACCESS[path].parties
            found = outcome(lambda path=path: call(channel, path, [GARBAGE]))  # type: ignore[misc]
            name = "random bytes" if is_allowed else "another's call"
            results.note(name, found, f"{who} calls {path}")
    attacked.check_unharmed()


def test_a_door_has_no_other_calls(attacked: AttackedFederation) -> None:
    with attacked.door("predictions", attacked.authority.issue("bank")) as channel:
        for path in METHODS["peers"].keys() - METHODS["predictions"].keys():
            assert outcome(lambda path=path: call(channel, path, [b""])) == "UNIMPLEMENTED"  # type: ignore[misc]
