"""The whole table of who may call what, with real certificates of every party at every door."""

import pytest
from authorities import Tls, forge
from every_call import METHODS, call
from fortress import DOORS, Fortress, outcome
from results import Results

from laser_vfl.wire.access import ACCESS, Party

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


def shown_by(fortress: Fortress, who: str) -> Tls:
    """Return a certificate; somebody is a client of another federation."""
    if who != "somebody":
        return fortress.authority.issue(who)
    signer = fortress.authority.of["shop"]
    return forge(fortress.directory, signer, uris=["spiffe://other/client/shop"])


def test_every_call_that_there_is_has_a_rule() -> None:
    every = {path for methods in METHODS.values() for path in methods}
    assert every - set(ACCESS) == NOBODYS


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("who", PARTIES)
def test_everybody_may_call_what_the_table_says(
    who: str, door: str, fortress: Fortress, results: Results
) -> None:
    party = PARTIES[who]["coordinator" if door == "coordinator" else "bank"]
    with fortress.door(door, shown_by(fortress, who)) as channel:
        for path in METHODS[door]:
            is_allowed = path not in NOBODYS and party in ACCESS[path].parties
            found = outcome(lambda path=path: call(channel, path, [GARBAGE]))  # type: ignore[misc]
            name = "random bytes" if is_allowed else "another's call"
            results.note(name, found, f"{who} calls {path}")
    fortress.check_unharmed()


def test_a_door_has_no_other_calls(fortress: Fortress) -> None:
    with fortress.door("predictions", fortress.authority.issue("bank")) as channel:
        for path in METHODS["peers"].keys() - METHODS["predictions"].keys():
            assert outcome(lambda path=path: call(channel, path, [b""])) == "UNIMPLEMENTED"  # type: ignore[misc]
