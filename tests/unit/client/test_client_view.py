"""Views that the coordinator tells: what could lead a client elsewhere is not followed."""

from types import SimpleNamespace

import pytest

from laser_vfl.client.serving import Serving
from laser_vfl.client.told_address import told_address
from laser_vfl.client.view import Peer, member_view, read_peers
from laser_vfl.core.errors import ContractError
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
        told_address(address, "shop")
    with pytest.raises(ContractError, match='"shop" is at'):
        member_view(training(shop=address).view, ROSTER, "bank", 1)
    with pytest.raises(ContractError, match='"telco" is at'):
        read_peers(training(telco=address), ROSTER, "bank")


def test_serving_stays_with_the_address_that_it_knows(caplog: pytest.LogCaptureFixture) -> None:
    written: list[dict[str, str]] = []
    serving = SimpleNamespace(
        config=SimpleNamespace(name="bank"),
        askers={},
        _addresses={"shop": "shop:1"},
        _state=SimpleNamespace(write_addresses=lambda addresses: written.append(dict(addresses))),
    )
    Serving.meet(serving, {"shop": "unix:/run/x", "telco": "telco:2"})  # type: ignore[arg-type]
    assert written == [{"shop": "shop:1", "telco": "telco:2"}]
    assert '"shop" is at "unix:/run/x"' in caplog.text
