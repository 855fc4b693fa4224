"""A member that breaks the protocol of alignments: it is named, and nobody waits for it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from laser_vfl.client.alignment.curve import TABLE
from laser_vfl.data import POINT_BYTES, hash_to_curve, multiply, new_scalar
from laser_vfl.remote.operations import retrain
from laser_vfl.v1 import coordinator_pb2 as cpb
from tests.support.attacks.alignment_stand_in import HONEST, StandIn, Trick
from tests.support.daemons.dry_runs import (
    counts,
    dry_run,
    history,
    no_tracebacks,
    refused_by_all,
    wait_for_activity,
)
from tests.support.daemons.harness import Process, Site
from tests.support.data.people import People

ROSTER = ["bank", "museum", "shop"]
REAL = ("bank", "shop")
IDS = [f"person-{i:05d}" for i in range(20)] + [f"guest-{i}" for i in range(10)]
SHORT_WAITS = {"ring_grace_s": 1.0, "ring_stall_s": 3.0, "ring_hop_s": 1.0}

FIELD = 2**255 - 19
LOW_ORDER = bytes([1]) + bytes(31)
NOT_CANONICAL = (FIELD + 9).to_bytes(32, "little")
TWIST = bytes([2]) + bytes(31)
"""A point of the twist of the curve."""


def _with(point: bytes) -> Callable[[bytes], bytes]:
    """Put a point in place of the third."""
    return lambda points: points[: 2 * POINT_BYTES] + point + points[3 * POINT_BYTES :]


def _beside(point: bytes) -> bytes:
    """The sum of a point and (0, 0), which has order 2."""
    return pow(int.from_bytes(point, "little"), -1, FIELD).to_bytes(32, "little")


def _other(points: bytes) -> bytes:
    """As many good points, but others."""
    return multiply(points, new_scalar())


def _more(points: bytes) -> bytes:
    ids = ["a", "b", "c"]
    return points + hash_to_curve(ids, federation="trial", run="none", table=TABLE)


def _fewer(points: bytes) -> bytes:
    return points[: -3 * POINT_BYTES]


def _repeated(points: bytes) -> bytes:
    return points[:-POINT_BYTES] + points[:POINT_BYTES]


def _of(owner: str, change: Callable[[bytes], bytes | None]) -> Callable[..., bytes | None]:
    return lambda whose, points: change(points) if whose == owner else points


def _short_digest(request: cpb.CommitRequest) -> None:
    request.sha256 = request.sha256[:20]


TRICKS: dict[str, tuple[Trick, str]] = {
    "zero": (Trick(listed=_with(bytes(32))), "is of low order"),
    "a point of low order": (Trick(listed=_with(LOW_ORDER)), "is of low order"),
    "a point in another form": (Trick(listed=_with(NOT_CANONICAL)), "is not in canonical form"),
    "a point that becomes another's double": (
        Trick(listed=lambda p: _with(_beside(p[:32]))(p)),
        "1 points come twice",
    ),
    "a point twice": (Trick(listed=_repeated), "1 points come twice"),
    "more points": (Trick(sent=_more), "more points than the 30 that were committed to"),
    "fewer points": (Trick(sent=_fewer), "broke off the list of museum after 27 of 30"),
    "half a list": (Trick(is_cut=True), "museum"),
    "other points": (Trick(sent=_other), "its list is not the one that it committed to"),
    "a list twice": (Trick(times=2), "it sent the list of museum twice"),
    "a digest of another size": (Trick(committed=_short_digest), "a commitment is a SHA-256"),
    "more of another's points": (
        Trick(passed_on=_of("bank", _more)),
        "in the list of bank, there are more points",
    ),
    "another's points twice": (
        Trick(passed_on=_of("bank", _repeated)),
        "in the list of bank, 1 points come twice",
    ),
    "a point twice in a list that comes home": (
        Trick(passed_on=_of("shop", _repeated)),
        "in the list of shop, 1 points come twice",
    ),
    "zero in a list that comes home": (
        Trick(passed_on=_of("shop", _with(bytes(32)))),
        "in the list of shop",
    ),
    "a point of the twist in a list that comes home": (
        Trick(passed_on=_of("shop", _with(TWIST))),
        "is not a point of the curve",
    ),
    "a list that is not passed on": (Trick(passed_on=_of("bank", lambda p: None)), "museum"),
    "fewer points to the coordinator": (Trick(submitted=_fewer), "submitted 27"),
    "more points to the coordinator": (Trick(submitted=_more), "submitted 33"),
}


@dataclass
class Target:
    """Two daemons that serve a model of theirs, and a stand-in for the third client."""

    site: Site
    coordinator: Process
    clients: dict[str, Process]
    museum: StandIn

    @property
    def processes(self) -> tuple[Process, ...]:
        return (self.coordinator, *self.clients.values())


@pytest.fixture(scope="module")
def target(shared_site: Site) -> Iterator[Target]:
    site = shared_site
    site.wait_shorter({"WaitingTimes": SHORT_WAITS})
    people = People(60)
    for name in REAL:
        people.write(site.path, name, p_hold=1.0)
    rule = {"quorum": 2, "after_s": 1.5}
    config = site.coordinator_config(ROSTER, {"epochs": 1}, start=rule)
    coordinator = site.start_coordinator(config)
    clients = {name: _start(site, name) for name in REAL}
    for client in clients.values():
        client.wait_for_served()
    wait_for_activity(site, dict.fromkeys(REAL, "idle"))
    with StandIn(site, "museum", IDS) as museum:
        yield Target(site, coordinator, clients, museum)


@pytest.mark.core
def test_an_honest_stand_in_is_one_of_them(target: Target) -> None:
    """So that the rest of this file shows what each single trick does."""
    _check_honest(target)


@pytest.mark.parametrize("trick", TRICKS)
def test_who_breaks_the_protocol_is_named(trick: str, target: Target) -> None:
    target.museum.trick, reason = TRICKS[trick]
    logged = {process.name: len(process.stderr) for process in target.processes}
    said = refused_by_all(*target.clients.values())
    target.museum.trick = HONEST
    for text in said:
        assert "museum" in text, text
        assert reason in text
    for process in target.processes:
        process.wait_for(reason)
        assert "museum" in process.stderr[logged[process.name] :]
    _check_unharmed(target)


def test_after_all_that_they_align(target: Target) -> None:
    _check_honest(target)
    no_tracebacks(target.site)


def test_a_run_that_a_member_spoils_leaves_the_model_as_it_was(target: Target) -> None:
    site, museum = target.site, target.museum
    museum.trick, reason = TRICKS["other points"]
    asked = site.run("retrain", "retrain", "--coordinator", site.address, *site.tls_options)
    assert reason in museum.wait_for_verdict()
    assert asked.wait_exit() == 7
    assert reason in asked.stderr
    for client in target.clients.values():
        client.wait_for("is served on")
    refusals = [line for line in history(site) if line["event"] == "refused"]
    assert refusals[-1]["purpose"] == "run"
    assert "shop refused museum" in refusals[-1]["reason"]
    _check_unharmed(target)


def test_a_client_without_a_model_ends_when_a_member_spoils_the_run(target: Target) -> None:
    """Last in this file."""
    site, museum = target.site, target.museum
    assert target.clients["shop"].terminate() == 0
    shutil.rmtree(site.path / "shop-state")
    museum.trick, reason = TRICKS["a point twice"]
    museum.register()
    wait_for_activity(site, {"bank": "idle"})
    shop = _start(site, "shop")
    shop.wait_for("a run does not start by itself")
    retrain(site.address, site.operator_access())
    assert shop.wait_exit() == 7
    assert reason in shop.stderr.splitlines()[-1]
    assert "museum" in shop.stderr.splitlines()[-1]
    assert target.clients["bank"].alive
    _check_serves(target.clients["bank"])
    no_tracebacks(site)


def _start(site: Site, name: str) -> Process:
    return site.start_client(site.client_config(name, alignments_per_day=1000))


def _check_honest(target: Target) -> None:
    target.museum.trick = HONEST
    found = dry_run(target.clients["shop"])
    assert found["members"] == ROSTER
    expected = {frozenset(ROSTER): 20, frozenset({"museum"}): 10, frozenset(REAL): 40}
    assert counts(found, "train") == expected


def _check_unharmed(target: Target) -> None:
    assert all(process.alive for process in target.processes)
    for client in target.clients.values():
        _check_serves(client)


def _check_serves(client: Process) -> None:
    with client.predictor() as predictor:
        assert not any(predictor.predict(["person-00001"]).errors)
