"""Views that the coordinator tells: what could lead a client elsewhere is not followed."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from laser_vfl.client.serving.models.model_registry import ModelRegistry
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.peer_directory import PeerDirectory
from laser_vfl.client.session.member_view import Peer, member_view, read_peers
from laser_vfl.client.session.peer_address import checked_address
from laser_vfl.core.errors import ContractError
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.v1 import coordinator_pb2 as pb

ROSTER = ("bank", "shop", "telco")

NO_HOSTS = [
    "",
    "shop",
    "shop:",
    ":7000",
    "unix:/run/shop.sock",
    "unix:7000",
    "UNIX:7000",
    "unix-abstract:1",
    "dns:///shop:7000",
    "dns:7000",
    "dns://8.8.8.8/shop:7000",
    "ipv4:10.0.0.1:7000",
    "ipv6:[::1]:7000",
    "vsock:1",
    "xds:///shop:7000",
    "http://shop:7000",
    "shop:7000,telco:7000",
    "shop:70000",
    "shop:7000\n",
]


def training(shop: str = "shop:1", telco: str = "[::1]:2") -> pb.Training:
    members = [
        pb.ViewMember(client="bank", incarnation=1, address="10.0.0.1:7001"),
        pb.ViewMember(client="shop", incarnation=2, address=shop),
    ]
    joiner = pb.AlignmentMember(client="telco", incarnation=3, address=telco)
    view = pb.View(run="run-1", generation=4, members=members)
    return pb.Training(view=view, joiners=[joiner])


def test_members_and_joiners_are_where_the_coordinator_says() -> None:
    view = member_view(training().view, ROSTER, "bank", 1)
    assert view is not None
    assert view.peers == (Peer(1, "shop", 2, "shop:1"),)
    assert read_peers(training(), ROSTER, "bank") == (
        Peer(1, "shop", 2, "shop:1"),
        Peer(2, "telco", 3, "[::1]:2"),
    )


@pytest.mark.parametrize("address", NO_HOSTS)
def test_what_is_no_host_is_not_dialled(address: str) -> None:
    with pytest.raises(ContractError, match=r'coordinator says that "shop" is at .*no host:port'):
        checked_address(address, "shop")
    with pytest.raises(ContractError, match='"shop" is at'):
        member_view(training(shop=address).view, ROSTER, "bank", 1)
    with pytest.raises(ContractError, match='"telco" is at'):
        read_peers(training(telco=address), ROSTER, "bank")


def test_serving_stays_with_the_address_that_it_knows(caplog: pytest.LogCaptureFixture) -> None:
    written: list[dict[str, str]] = []
    threads: set[threading.Thread] = set()

    def write(addresses: dict[str, str]) -> None:
        threads.add(threading.current_thread())
        written.append(dict(addresses))

    state = SimpleNamespace(read_addresses=lambda: {"shop": "shop:1"}, write_addresses=write)

    async def play() -> None:
        peers = PeerDirectory("bank", state, Credentials(), PeerTraffic())  # type: ignore[arg-type]
        peers.learn_addresses({"shop": "unix:/run/x", "telco": "telco:2"})
        await peers.close()

    asyncio.run(play())
    assert written == [{"shop": "shop:1", "telco": "telco:2"}]
    assert '"shop" is at "unix:/run/x"' in caplog.text
    assert threading.main_thread() not in threads, "the event loop does not wait for the disk"


@pytest.mark.parametrize("asks_peers", [True, False])
def test_a_model_is_published_and_loaded_off_the_event_loop(asks_peers: bool) -> None:
    asked: list[str] = []
    where: dict[str, threading.Thread] = {}

    def noted(name: str) -> Callable[..., bool]:
        def call(*_: object) -> bool:
            where[name] = threading.current_thread()
            return True

        return call

    registry = ModelRegistry(
        SimpleNamespace(threads=1, own_address=None, name="bank"),  # type: ignore[arg-type]
        SimpleNamespace(publish=noted("publish"), has=noted("has")),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        SimpleNamespace(count=noted("count")),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        lambda served, before: asked.append(served.model.run),
        NextModel(SimpleNamespace(read_next=lambda: None), "auto"),  # type: ignore[arg-type]
    )
    served = SimpleNamespace(model=SimpleNamespace(addresses={}, run="run-1"), used=lambda: None)

    def load(run: str) -> SimpleNamespace:
        noted("load")()
        return served

    registry._load = load  # type: ignore[method-assign, assignment]
    asyncio.run(registry.publish("run-1", asks_peers=asks_peers))
    registry.close()
    assert registry.served_run == "run-1"
    assert asked == (["run-1"] if asks_peers else []), "who leaves has nobody to ask"
    assert set(where) == {"publish", "has", "load", "count"}
    assert threading.main_thread() not in where.values()
