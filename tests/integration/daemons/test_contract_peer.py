"""A hostile peer with a valid certificate: whatever it sends, it gets a proper status, no more."""

import queue
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import grpc
import pytest

from laser_vfl.transport.protocol import PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as cpb
from laser_vfl.v1 import peer_pb2 as ppb
from laser_vfl.v1 import tensor_pb2 as tpb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from tests.support.daemons.harness import Authority, Process, Site, eventually, health
from tests.support.data.people import People

pytestmark = pytest.mark.core

TIMEOUT_S = 10.0
SLOW = {
    "representation": "tests.support.data.own_models:slow",
    "representation_options": {"delay_s": 0.05},
}
GARBAGE = {
    "ones": b"\xff" * 64,
    "overlong": b"\x0a\xff\xff\xff\xff\x0f",
    "not utf-8": b"\x0a\x04\xff\xfe\xfd\xfc",
    "all bytes": bytes(range(256)),
}
INVALID = {grpc.StatusCode.INVALID_ARGUMENT}
DENIED = {grpc.StatusCode.PERMISSION_DENIED}


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
        ["bank", "shop", "museum"], {"epochs": 60}, start={"quorum": 2, "after_s": 0.0}
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
        site.authority.channel(site.address, "coordinator", "museum") as to_coordinator,
        site.authority.channel(address, "shop", "museum") as to_client,
    ):
        yield Target(site, coordinator, clients, to_coordinator, to_client)


def _registration(**changes: object) -> cpb.RegisterRequest:
    fields = {
        "federation": "trial",
        "protocol_version": PROTOCOL_VERSION,
        "client": "museum",
        "nonce": "hostile",
        "address": "127.0.0.1:1",
        "has_head": True,
    }
    return cpb.RegisterRequest(**{**fields, **changes})  # type: ignore[arg-type]


def _register(target: Target, **changes: object) -> cpb.RegisterResponse:
    stub = CoordinatorStub(target.to_coordinator)
    return stub.Register(_registration(**changes), timeout=TIMEOUT_S)


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
    _check_refused(lambda: list(call), INVALID | DENIED)
    _check_unharmed(target)


@pytest.mark.parametrize("sender", ["nobody", "museum", "shop", "bank"])
def test_who_knows_the_run_must_also_be_a_member_of_it(sender: str, target: Target) -> None:
    run = _run_id(target)
    hello = _frame(run=run, sender=sender, incarnation=999)
    assert target.site.authority is not None
    with target.site.authority.channel(target.clients[1].wait_ready(), "shop", sender) as channel:
        call = PeerStub(channel).Exchange(iter([hello]), timeout=TIMEOUT_S)
        _check_refused(lambda: list(call), DENIED if sender == "shop" else INVALID)
    _check_unharmed(target)


def test_nobody_exchanges_frames_in_the_name_of_a_member(target: Target) -> None:
    hello = _frame(run=_run_id(target), sender="bank", incarnation=1)
    call = PeerStub(target.to_client).Exchange(iter([hello]), timeout=TIMEOUT_S)
    _check_refused(lambda: list(call), DENIED)
    _check_unharmed(target)


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"protocol_version": 0}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"protocol_version": 99}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"federation": ""}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"client": ""}, grpc.StatusCode.PERMISSION_DENIED),
        ({"client": "nobody"}, grpc.StatusCode.PERMISSION_DENIED),
        ({"client": "bank"}, grpc.StatusCode.PERMISSION_DENIED),
        ({"client": "x\n" * 2000}, grpc.StatusCode.PERMISSION_DENIED),
    ],
    ids=[
        "no version",
        "a later version",
        "no federation",
        "no name",
        "somebody else's name",
        "the name of a member",
        "a long name",
    ],
)
def test_a_registration_that_does_not_fit_is_refused(
    changes: dict[str, object], status: grpc.StatusCode, target: Target
) -> None:
    _check_refused(lambda: _register(target, **changes), {status})
    _check_unharmed(target)


@dataclass(frozen=True)
class Call:
    """An alignment that a federation of one is called to, and who it is there."""

    stub: CoordinatorStub
    me: int
    alignment: str


@pytest.fixture(scope="module")
def museum(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Site]:
    """A coordinator of the museum alone."""
    with Site(tmp_path_factory.mktemp("museum"), authority) as site:
        site.start_coordinator(site.coordinator_config(["museum"], {}, heartbeat_timeout_s=100))
        yield site


@pytest.fixture
def call(museum: Site, authority: Authority) -> Iterator[Call]:
    """The museum has registered, been called, and committed to two points."""
    with authority.channel(museum.address, "coordinator", "museum") as channel:
        stub = CoordinatorStub(channel)
        me = stub.Register(_registration(wants_run=True), timeout=TIMEOUT_S).incarnation
        beat = cpb.Heartbeat(
            client="museum", incarnation=me, state=cpb.CLIENT_STATE_JOINING, prepared=True
        )
        beats: queue.SimpleQueue[cpb.Heartbeat | None] = queue.SimpleQueue()
        beats.put(beat)
        session = stub.Session(iter(beats.get, None), timeout=100)
        alignment = next(d.gathering.call.id for d in session if d.gathering.call.id)
        commit = cpb.CommitRequest(
            client="museum", incarnation=me, alignment=alignment, num_points=2, sha256=bytes(32)
        )
        stub.Commit(commit, timeout=TIMEOUT_S)
        yield Call(stub, me, alignment)
        beats.put(None)
        list(session)


def _ids(call: Call, *pieces: bytes, **changes: object) -> list[cpb.SubmitIdsRequest]:
    fields = {
        "client": "museum",
        "incarnation": call.me,
        "alignment": call.alignment,
        "table": cpb.TABLE_SERVE,
        "tables": b"\1\2",
    }
    first = cpb.SubmitIdsRequest(**{**fields, **changes})  # type: ignore[arg-type]
    return [first, *(cpb.SubmitIdsRequest(blinded=piece) for piece in pieces)]


ID_LISTS: dict[str, Callable[[Call], Iterable[cpb.SubmitIdsRequest]]] = {
    "nothing at all": lambda call: [],
    "no table": lambda call: _ids(call, table=cpb.TABLE_UNSPECIFIED),
    "a table that does not exist": lambda call: _ids(call, table=9),
    "the list of one table": lambda call: _ids(call, bytes(range(64)), table=cpb.TABLE_TRAIN),
    "nothing of tables": lambda call: _ids(call, bytes(range(64)), tables=b""),
    "people of no table": lambda call: _ids(call, bytes(range(64)), tables=b"\1\4"),
    "half an id": lambda call: _ids(call, bytes(16)),
    "an id and a half": lambda call: _ids(call, bytes(32), b"\x01" * 16),
    "the same id twice": lambda call: _ids(call, bytes(64)),
    "fewer than committed": lambda call: _ids(call, bytes(32)),
    "more than committed": lambda call: _ids(call, bytes(range(96))),
}


@pytest.mark.parametrize("requests", ID_LISTS.values(), ids=ID_LISTS)
def test_malformed_ids_are_refused(
    requests: Callable[[Call], Iterable[cpb.SubmitIdsRequest]], call: Call
) -> None:
    _check_refused(lambda: call.stub.SubmitIds(iter(requests(call)), timeout=TIMEOUT_S), INVALID)


def test_after_malformed_ids_good_ones_are_taken(call: Call) -> None:
    """After the tests above: they have not spoilt the alignment."""
    ids = _ids(call, bytes(range(64)))
    assert call.stub.SubmitIds(iter(ids), timeout=TIMEOUT_S).num_ids == 2
    fetch = cpb.FetchAlignmentRequest(
        client="museum", incarnation=call.me, alignment=call.alignment
    )
    answer = list(call.stub.FetchAlignment(fetch, timeout=TIMEOUT_S))
    assert [(g.observed, g.size) for part in answer for g in part.groups] == [
        (1, 1),
        (1, 1),
        (1, 2),
    ]


def test_who_was_not_called_to_an_alignment_has_no_part_in_it(target: Target) -> None:
    me = _register(target).incarnation
    stub = CoordinatorStub(target.to_coordinator)
    for alignment in ("", "0" * 32, _run_id(target)):
        for question in _about(stub, "museum", me, alignment):
            _check_refused(question, INVALID | {grpc.StatusCode.ABORTED})
    _check_unharmed(target)


@pytest.mark.parametrize("client", ["", "nobody", "museum", "bank"])
def test_who_is_not_registered_is_not_found(client: str, target: Target) -> None:
    stub = CoordinatorStub(target.to_coordinator)
    missing = {grpc.StatusCode.NOT_FOUND} if client == "museum" else DENIED
    beat = cpb.Heartbeat(client=client, incarnation=999, state=cpb.CLIENT_STATE_GONE)
    dry_run = cpb.DryRunRequest(client=client, incarnation=999)
    _check_refused(lambda: list(stub.Session(iter([beat]), timeout=TIMEOUT_S)), missing)
    _check_refused(lambda: stub.DryRun(dry_run, timeout=TIMEOUT_S), missing)
    for question in _about(stub, client, 999, _run_id(target)):
        _check_refused(question, missing)
    _check_unharmed(target)


def test_a_heartbeat_without_a_state_is_refused(target: Target) -> None:
    me = _register(target).incarnation
    beat = cpb.Heartbeat(client="museum", incarnation=me)
    stub = CoordinatorStub(target.to_coordinator)
    _check_refused(lambda: list(stub.Session(iter([beat]), timeout=TIMEOUT_S)), INVALID)
    _check_unharmed(target)


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
@pytest.mark.parametrize(
    "method",
    [
        *("Register", "Commit", "FetchAlignment", "SubmitIds", "RefuseAlignment", "DryRun"),
        "Session",
    ],
)
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
@pytest.mark.parametrize("method", ["Exchange", "HandOn"])
def test_random_bytes_for_a_client(method: str, garbage: bytes, target: Target) -> None:
    path = f"/laser_vfl.v1.Peer/{method}"
    _check_refused(
        lambda: _call(target.to_client, path, garbage, True, method == "Exchange"),
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
    target.site.hurry()
    assert [client.wait_exit(100) for client in target.clients] == [0, 0]
    assert target.site.events() == ["aligned", "started", "finished"]
    assert target.coordinator.terminate() == 0


def test_a_stranger_cannot_fill_the_logs_with_tracebacks(target: Target) -> None:
    """Last in this file: it reads what the tests above have caused."""
    assert "Traceback" not in target.site.report()


def _run_id(target: Target) -> str:
    lines = (target.site.path / "coordinator-state" / "runs.jsonl").read_text()
    return lines.split('"run": "')[1].split('"')[0]


def _about(
    stub: CoordinatorStub, client: str, incarnation: int, alignment: str
) -> list[Callable[[], object]]:
    """All that a member of an alignment may say of it."""
    who = {"client": client, "incarnation": incarnation, "alignment": alignment}
    ids = cpb.SubmitIdsRequest(**who, table=cpb.TABLE_TRAIN, blinded=bytes(32))
    fetch = cpb.FetchAlignmentRequest(**who)
    refuse = cpb.RefuseAlignmentRequest(**who, peer="bank", reason="so it is")
    commit = cpb.CommitRequest(**who)
    return [
        lambda: stub.Commit(commit, timeout=TIMEOUT_S),
        lambda: stub.SubmitIds(iter([ids]), timeout=TIMEOUT_S),
        lambda: list(stub.FetchAlignment(fetch, timeout=TIMEOUT_S)),
        lambda: stub.RefuseAlignment(refuse, timeout=TIMEOUT_S),
    ]


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
