"""A member that would have everybody train, by coming back empty or by asking without end."""

import queue
import shutil
import time
from contextlib import suppress

import grpc
import pytest

from laser_vfl.remote.operations import coordinator_status
from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from tests.support.attacks.attack_results import Results
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import STATUS_POLL_S, Authority, Site, eventually

ROSTER = ("bank", "shop", "telco")
HONEST = ("bank", "telco")
NUM_ASKED = 30
NO_RUN = "no run starts"


@pytest.fixture
def serving(site: Site) -> Federation:
    """A federation that has trained."""
    return Federation(site, ROSTER, {})


@pytest.mark.core
def test_who_comes_back_empty_starts_no_run(serving: Federation, results: Results) -> None:
    before, site = serving.runs(), serving.site
    events = site.events()
    assert serving.clients["shop"].terminate() == 0
    shutil.rmtree(site.path / "shop-state")
    serving.start("shop").wait_for("a run does not start by itself")
    eventually(lambda: _requests(site) == ["shop"], "its request is shown")
    _stay_idle(serving)
    found = NO_RUN if site.events() == events else f"{site.events()[len(events) :]}"
    assert [serving.status(name)["model"]["run"] for name in HONEST] == before[:2]
    results.note("a member comes back empty", found)


def test_who_asks_for_runs_without_end_starts_none(
    serving: Federation, authority: Authority, results: Results
) -> None:
    before, site = serving.runs(), serving.site
    events = site.events()
    assert serving.clients["shop"].terminate() == 0
    with authority.channel(site.address, "coordinator", "shop") as channel:
        for number in range(NUM_ASKED):
            _ask_for_a_run(CoordinatorStub(channel), str(number))
    _stay_idle(serving)
    found = NO_RUN if site.events() == events else f"{site.events()[len(events) :]}"
    assert [serving.status(name)["model"]["run"] for name in HONEST] == before[:2]
    assert _requests(site) == [], "who is gone takes its request along"
    results.note("a member asks for runs without end", found)


def _ask_for_a_run(stub: CoordinatorStub, nonce: str) -> None:
    """Register as somebody who wants a run and is prepared, and stay until the answer."""
    registration = pb.RegisterRequest(
        federation="trial",
        protocol_version=PROTOCOL_VERSION,
        client="shop",
        nonce=nonce,
        address="127.0.0.1:1",
        has_head=True,
        wants_run=True,
    )
    me = eventually(lambda: _registered(stub, registration), "it is registered")
    beats: queue.SimpleQueue[pb.Heartbeat | None] = queue.SimpleQueue()
    state = pb.CLIENT_STATE_JOINING
    beats.put(pb.Heartbeat(client="shop", incarnation=me, state=state, prepared=True))
    session = stub.Session(iter(beats.get, None), timeout=10)
    first = next(session)
    assert (first.gathering.wanted, first.gathering.own_request) == (
        False,
        pb.REQUEST_STATE_PENDING,
    )
    beats.put(None)
    with suppress(grpc.RpcError):
        list(session)


def _registered(stub: CoordinatorStub, registration: pb.RegisterRequest) -> int:
    """Return the incarnation; 0 while it may not, or another has still to be seen leaving."""
    try:
        return stub.Register(registration, timeout=5).incarnation
    except grpc.RpcError:
        return 0


def _stay_idle(serving: Federation) -> None:
    """See for some seconds that nobody is called to a run; all are there, so it could start."""
    until = time.monotonic() + 3
    while time.monotonic() < until:
        status = _status(serving.site)
        assert not status["wanted"]
        assert status["run"] is None
        with serving.predictor("bank") as predictor:
            assert not any(predictor.predict(serving.ids).errors)
        time.sleep(STATUS_POLL_S)


def _requests(site: Site) -> list[str]:
    return list(_status(site)["requests"])


def _status(site: Site) -> dict[str, object]:
    return coordinator_status(site.address, site.operator_access())
