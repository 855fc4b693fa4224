"""A hostile peer with a valid certificate: whatever it sends, it gets a proper status, no more."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import grpc
import pytest
from harness import People, Process, Site, eventually, health

from laser_vfl.v1 import coordinator_pb2 as cpb
from laser_vfl.v1 import peer_pb2 as ppb
from laser_vfl.v1 import tensor_pb2 as tpb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from laser_vfl.wire.protocol import PROTOCOL_VERSION

TIMEOUT_S = 10.0
SLOW = {"representation": "own_models:slow", "representation_options": {"delay_s": 0.05}}
GARBAGE = {
    "ones": b"\xff" * 64,
    "overlong": b"\x0a\xff\xff\xff\xff\x0f",
    "not utf-8": b"\x0a\x04\xff\xfe\xfd\xfc",
    "all bytes": bytes(range(256)),
}
INVALID = {grpc.StatusCode.INVALID_ARGUMENT}


@dataclass(frozen=True)
class Target:
    """A federation of two in the midst of training, and a roster place that is still free."""

    site: Site
    coordinator: Process
    clients: list[Process]
    to_coordinator: grpc.Channel
    to_client: grpc.Channel


@pytest.fixture(scope="module")
def target(shared_site: Site) -> Iterator[Target]:
    site = shared_site
    people = People(160)
    for name in ("bank", "shop"):
        people.write(site.path, name)
    config = site.coordinator_config(
        ["bank", "shop", "museum"], {"epochs": 20}, start={"quorum": 2, "after_s": 0.0}
    )
    coordinator = site.start_coordinator(config)
    clients = [
        site.start_client(site.client_config(name, model=SLOW), "--exit-after-training")
        for name in ("bank", "shop")
    ]
    address = clients[1].wait_ready()
    site.wait_for_event("started")
    eventually(lambda: site.metrics("shop"), "shop trains")
    assert site.authority is not None
    with (
        site.authority.channel(site.address) as to_coordinator,
        site.authority.channel(address) as to_client,
    ):
        yield Target(site, coordinator, clients, to_coordinator, to_client)


def _register(target: Target, **changes: object) -> cpb.RegisterResponse:
    fields = {
        "federation": "trial",
        "protocol_version": PROTOCOL_VERSION,
        "client": "museum",
        "nonce": "hostile",
        "address": "127.0.0.1:1",
        "has_head": True,
    }
    request = cpb.RegisterRequest(**{**fields, **changes})  # type: ignore[arg-type]
    return CoordinatorStub(target.to_coordinator).Register(request, timeout=TIMEOUT_S)


def _frame(**changes: object) -> ppb.Frame:
    fields = {
        "run": "0" * 32,
        "generation": 1,
        "kind": ppb.FRAME_KIND_HELLO,
        "sender": "bank",
        "incarnation": 1,
    }
    return ppb.Frame(**{**fields, **changes})  # type: ignore[arg-type]


def _big_frame() -> ppb.Frame:
    tensor = tpb.Tensor(dtype=tpb.DTYPE_FLOAT32, shape=[2**31, 2**31], data=b"")
    return _frame(kind=ppb.FRAME_KIND_GRADIENT, tensor=tensor)


STREAMS: dict[str, list[ppb.Frame]] = {
    "nothing at all": [],
    "an empty frame": [ppb.Frame()],
    "no hello": [_frame(kind=ppb.FRAME_KIND_REPRESENTATION)],
    "a huge tensor in place of a hello": [_big_frame()],
    "a kind that does not exist": [_frame(kind=77)],
    "another run": [_frame()],
    "another generation": [_frame(generation=9)],
    "an unknown sender": [_frame(sender="nobody")],
    "a hello and then rubbish": [_frame(), _big_frame()],
}


@pytest.mark.parametrize("frames", STREAMS.values(), ids=STREAMS)
def test_a_stranger_cannot_exchange_frames(frames: list[ppb.Frame], target: Target) -> None:
    call = PeerStub(target.to_client).Exchange(iter(frames), timeout=TIMEOUT_S)
    _check_refused(lambda: list(call), INVALID)
    _check_unharmed(target)


@pytest.mark.parametrize("sender", ["nobody", "museum", "shop", "bank"])
def test_who_knows_the_run_must_also_be_a_member_of_it(sender: str, target: Target) -> None:
    run = _run_id(target)
    hello = _frame(run=run, sender=sender, incarnation=999)
    call = PeerStub(target.to_client).Exchange(iter([hello]), timeout=TIMEOUT_S)
    _check_refused(lambda: list(call), INVALID)
    _check_unharmed(target)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"protocol_version": 0}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"protocol_version": 99}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"federation": ""}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"client": ""}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"client": "nobody"}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"client": "bank"}, grpc.StatusCode.ALREADY_EXISTS),
        ({"client": "x\n" * 2000}, grpc.StatusCode.FAILED_PRECONDITION),
    ],
    ids=[
        "no version",
        "a later version",
        "no federation",
        "no name",
        "a name not on the roster",
        "a name that is taken",
        "a long name",
    ],
)
def test_a_registration_that_does_not_fit_is_refused(
    changes: dict[str, object], status: grpc.StatusCode, target: Target
) -> None:
    _check_refused(lambda: _register(target, **changes), {status})
    _check_unharmed(target)


def _ids(incarnation: int, *pieces: bytes, client: str = "museum") -> list[cpb.SubmitIdsRequest]:
    first = cpb.SubmitIdsRequest(client=client, incarnation=incarnation, table=cpb.TABLE_TRAIN)
    return [first, *(cpb.SubmitIdsRequest(digests=piece) for piece in pieces)]


ID_LISTS: dict[str, Callable[[int], Iterable[cpb.SubmitIdsRequest]]] = {
    "nothing at all": lambda me: [],
    "no table": lambda me: [cpb.SubmitIdsRequest(client="museum", incarnation=me)],
    "a table that does not exist": lambda me: [
        cpb.SubmitIdsRequest(client="museum", incarnation=me, table=9)  # type: ignore[arg-type]
    ],
    "half an id": lambda me: _ids(me, bytes(16)),
    "an id and a half": lambda me: _ids(me, bytes(32), b"\x01" * 16),
    "the same id twice": lambda me: _ids(me, bytes(64)),
}


@pytest.mark.parametrize("requests", ID_LISTS.values(), ids=ID_LISTS)
def test_malformed_ids_are_refused(
    requests: Callable[[int], Iterable[cpb.SubmitIdsRequest]], target: Target
) -> None:
    me = _register(target).incarnation
    stub = CoordinatorStub(target.to_coordinator)
    _check_refused(lambda: stub.SubmitIds(iter(requests(me)), timeout=TIMEOUT_S), INVALID)
    _check_unharmed(target)


@pytest.mark.parametrize("client", ["", "nobody", "museum", "bank"])
def test_who_is_not_registered_is_not_found(client: str, target: Target) -> None:
    stub = CoordinatorStub(target.to_coordinator)
    missing = {grpc.StatusCode.NOT_FOUND}
    beat = cpb.Heartbeat(client=client, incarnation=999, state=cpb.CLIENT_STATE_STOPPED)
    fetch = cpb.FetchAlignmentRequest(client=client, incarnation=999)
    ids = _ids(999, bytes(32), client=client)
    _check_refused(lambda: list(stub.Session(iter([beat]), timeout=TIMEOUT_S)), missing)
    _check_refused(lambda: list(stub.FetchAlignment(fetch, timeout=TIMEOUT_S)), missing)
    _check_refused(lambda: stub.SubmitIds(iter(ids), timeout=TIMEOUT_S), missing)
    _check_unharmed(target)


def test_a_heartbeat_without_a_state_is_refused(target: Target) -> None:
    me = _register(target).incarnation
    beat = cpb.Heartbeat(client="museum", incarnation=me)
    stub = CoordinatorStub(target.to_coordinator)
    _check_refused(lambda: list(stub.Session(iter([beat]), timeout=TIMEOUT_S)), INVALID)
    _check_unharmed(target)


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize("method", ["Register", "FetchAlignment", "SubmitIds", "Session"])
def test_random_bytes_for_the_coordinator(method: str, garbage: bytes, target: Target) -> None:
    path = f"/laser_vfl.v1.Coordinator/{method}"
    streams_in = method in ("SubmitIds", "Session")
    streams_out = method in ("FetchAlignment", "Session")
    _check_refused(
        lambda: _call(target.to_coordinator, path, garbage, streams_in, streams_out),
        INVALID | {grpc.StatusCode.INTERNAL},
    )
    _check_unharmed(target)


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_random_bytes_for_a_client(garbage: bytes, target: Target) -> None:
    _check_refused(
        lambda: _call(target.to_client, "/laser_vfl.v1.Peer/Exchange", garbage, True, True),
        INVALID | {grpc.StatusCode.INTERNAL},
    )
    _check_unharmed(target)


def test_a_message_above_the_limit_is_refused(target: Target) -> None:
    huge = cpb.RegisterRequest(client="x" * (5 << 20))
    stub = CoordinatorStub(target.to_coordinator)
    refused = {grpc.StatusCode.RESOURCE_EXHAUSTED}
    _check_refused(lambda: stub.Register(huge, timeout=TIMEOUT_S), refused)
    _check_unharmed(target)


def test_a_method_that_does_not_exist(target: Target) -> None:
    for channel in (target.to_client, target.to_coordinator):
        for path in ("/laser_vfl.v1.Peer/Steal", "/nothing/Here"):
            _check_refused(
                lambda channel=channel, path=path: _call(channel, path, b"", False, False),
                {grpc.StatusCode.UNIMPLEMENTED},
            )


def test_after_all_that_the_federation_finishes(target: Target) -> None:
    """Last but one in this file."""
    _check_unharmed(target)
    assert [client.wait_exit(100) for client in target.clients] == [0, 0]
    assert target.site.events() == ["aligned", "started", "finished"]
    assert target.coordinator.terminate() == 0


def test_a_stranger_cannot_fill_the_logs_with_tracebacks(target: Target) -> None:
    """Last in this file: it reads what the tests above have caused."""
    assert "Traceback" not in target.site.report()


def _run_id(target: Target) -> str:
    lines = (target.site.path / "coordinator-state" / "runs.jsonl").read_text()
    return lines.split('"run": "')[1].split('"')[0]


def _call(
    channel: grpc.Channel, path: str, content: bytes, streams_in: bool, streams_out: bool
) -> object:
    make = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[streams_in, streams_out]
    answer = make(path)(iter([content]) if streams_in else content, timeout=TIMEOUT_S)
    return list(answer) if streams_out else answer


def _check_refused(call: Callable[[], object], statuses: set[grpc.StatusCode]) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call()
    status, details = refused.value.code(), refused.value.details() or ""
    assert status in statuses, (status, details)
    assert len(details) < 1000
    for secret in ("Traceback", "Error", "Exception", "class '", "/work", ".py", "0x"):
        assert secret not in details


def _check_unharmed(target: Target) -> None:
    assert target.coordinator.alive
    assert all(client.alive for client in target.clients)
    assert target.site.events() == ["aligned", "started"]
    assert health(target.to_client) == "SERVING"
    assert health(target.to_coordinator) == "SERVING"
