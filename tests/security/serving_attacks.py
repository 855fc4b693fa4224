"""Attacks on a federation that serves: each tries something, and returns how it ended."""

import itertools
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import numpy as np
from attacked_federation import DOORS, AttackedFederation, outcome

from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.security.authority import Authority
from laser_vfl.security.certificate_files import init_authority
from laser_vfl.transport.protocol import CHUNK_BYTES, MAX_IDS, PROTOCOL_VERSION
from laser_vfl.v1 import coordinator_pb2 as cpb
from laser_vfl.v1 import peer_pb2 as ppb
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1 import tensor_pb2 as tpb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from laser_vfl.v1.prediction_pb2_grpc import PredictionStub
from tests.support.attacks import raw_http2
from tests.support.attacks.attack_table import CLOSED, TOO_MUCH
from tests.support.attacks.every_call import METHODS, call
from tests.support.daemons.authorities import Tls, forge

TIMEOUT_S = 10.0
BANK = "spiffe://trial/client/bank"
BANK_DNS = "bank.client.trial"
KNOCKS = {
    "coordinator": "/laser_vfl.v1.Coordinator/GetStatus",
    "peers": "/laser_vfl.v1.Peer/Represent",
    "predictions": "/laser_vfl.v1.Prediction/GetClientStatus",
}
MEMBERS = {"coordinator": "shop", "peers": "shop", "predictions": "bank/crm"}
"""Who is let in at each door."""

STATUS_NAMES = {str(code.value[0]): code.name for code in grpc.StatusCode}
MANY_CALLS = 100
FLOODERS = 8
MOST_CALLS = 10_000
"""More calls than anybody may make in the time that they take, on a slow machine too."""

MOST_S = 1.0
"""How long a member may wait for the coordinator while another floods it."""

NUM_MADE_UP = 10_000
ALIGNED_WITHIN_S = 5.0
"""New ids are aligned after the next heartbeat, which is one second away."""

HUGE_BYTES = 5 << 20
BOMB_BYTES = 256 << 20

Result = str | Iterable[str]


def doing(name: str, attacked: AttackedFederation) -> str:
    """Attack, and return all ways in which it ended."""
    found = DOING[name](attacked)
    return found if isinstance(found, str) else ", ".join(sorted(set(found)))


def knock(attacked: AttackedFederation, shown: Tls | None) -> list[str]:
    """Make a call at every door."""
    ends = []
    for door in DOORS:
        with attacked.door(door, shown) as channel:
            ends.append(outcome(lambda c=channel, d=door: call(c, KNOCKS[d], [b""])))  # type: ignore[misc]
    return ends


def _forged(signer: str, **says: Any) -> Callable[[AttackedFederation], Result]:
    """Show a certificate of one of the federation's authorities that says something else."""

    def attack(attacked: AttackedFederation) -> Result:
        return knock(attacked, forge(attacked.directory, attacked.authority.of[signer], **says))

    return attack


def _foreign(attacked: AttackedFederation) -> Result:
    own: Authority = init_authority(attacked.directory / "ca", "trial", now=datetime.now(UTC))
    return knock(attacked, forge(attacked.directory, own, uris=[BANK], dns=BANK_DNS))


def _plaintext(attacked: AttackedFederation) -> Result:
    for door in DOORS:
        with grpc.insecure_channel(attacked.address(door)) as channel:
            yield outcome(lambda c=channel, d=door: call(c, KNOCKS[d], [b""]))  # type: ignore[misc]


def handshake(
    attacked: AttackedFederation, door: str, version: Any = None, shown: Tls | None = None
) -> ssl.SSLSocket:
    """Shake hands at a door, unless told otherwise as somebody who is let in there."""
    to = "coordinator" if door == "coordinator" else "bank"
    ca = str(attacked.authority.directory / to / "ca.pem")
    name = attacked.authority.identity(to).dns
    shown = shown or attacked.authority.issue(MEMBERS[door])
    return raw_http2.tls_socket(attacked.address(door), name, ca, shown, version=version)


def _tls_1_2(attacked: AttackedFederation) -> Result:
    for door in DOORS:
        with handshake(attacked, door, ssl.TLSVersion.TLSv1_3):
            pass  # with the version that is spoken here, the same program gets in
        try:
            with handshake(attacked, door, ssl.TLSVersion.TLSv1_2) as connection:
                yield _named(raw_http2.call(connection, KNOCKS[door], [raw_http2.message(b"")]))
        except (ssl.SSLError, ConnectionError):
            yield CLOSED


def _openssl(attacked: AttackedFederation) -> Result:
    for door in DOORS:
        shown = attacked.authority.issue(MEMBERS[door])
        ends = {}
        for version in ("-tls1_3", "-tls1_2"):
            command = ["openssl", "s_client", version, "-alpn", "h2"]
            command += ["-connect", attacked.address(door)]
            command += ["-cert", shown["cert"], "-key", shown["key"]]
            found = subprocess.run(
                command, input=b"", capture_output=True, timeout=TIMEOUT_S, check=False
            )
            ends[version] = CLOSED if b"Cipher is (NONE)" in found.stdout else "OK"
        assert ends["-tls1_3"] == "OK"
        yield ends["-tls1_2"]


def _another_server(attacked: AttackedFederation) -> Result:
    address, crm = attacked.address("predictions", "telco"), attacked.authority.issue("bank/crm")
    with attacked.authority.channel_with(address, "bank", crm) as channel:
        return outcome(lambda: call(channel, KNOCKS["predictions"], [b""]))


def _claims_at_coordinator(attacked: AttackedFederation) -> Result:
    registration = cpb.RegisterRequest(
        federation="trial", protocol_version=PROTOCOL_VERSION, client="bank", nonce="hostile"
    )
    beat = cpb.Heartbeat(client="bank", incarnation=1, state=cpb.CLIENT_STATE_GONE)
    who = {"client": "bank", "incarnation": 1, "alignment": "0" * 32}
    with attacked.door("coordinator", attacked.authority.issue("shop")) as channel:
        stub = CoordinatorStub(channel)
        yield outcome(lambda: stub.Register(registration, timeout=TIMEOUT_S))
        yield outcome(lambda: list(stub.Session(iter([beat]), timeout=TIMEOUT_S)))
        yield outcome(lambda: stub.Commit(cpb.CommitRequest(**who), timeout=TIMEOUT_S))
        ids = [cpb.SubmitIdsRequest(**who)]
        yield outcome(lambda: stub.SubmitIds(iter(ids), timeout=TIMEOUT_S))
        fetch = cpb.FetchAlignmentRequest(**who)
        yield outcome(lambda: list(stub.FetchAlignment(fetch, timeout=TIMEOUT_S)))
        refusal = cpb.RefuseAlignmentRequest(**who)
        yield outcome(lambda: stub.RefuseAlignment(refusal, timeout=TIMEOUT_S))
        dry_run = cpb.DryRunRequest(client="bank", incarnation=1)
        yield outcome(lambda: stub.DryRun(dry_run, timeout=TIMEOUT_S))


def _peer_calls(attacked: AttackedFederation, caller: str, sender: str) -> Result:
    """Ask bank for everything that clients ask each other."""
    hello = ppb.Frame(kind=ppb.FRAME_KIND_HELLO, sender=sender, run="0" * 32)
    points = ppb.HandOnRequest(sender=sender, owner=sender, alignment="0" * 32)
    question = ppb.RepresentRequest(sender=sender)
    with attacked.door("peers", attacked.authority.issue(caller)) as channel:
        stub = PeerStub(channel)
        yield outcome(lambda: list(stub.Represent(iter([question]), timeout=TIMEOUT_S)))
        yield outcome(lambda: list(stub.Exchange(iter([hello]), timeout=TIMEOUT_S)))
        yield outcome(lambda: stub.HandOn(iter([points]), timeout=TIMEOUT_S))


def _stranger(attacked: AttackedFederation) -> Result:
    museum = attacked.authority.issue("museum")
    with attacked.door("coordinator", museum) as channel:
        stub = CoordinatorStub(channel)
        yield outcome(lambda: stub.GetStatus(cpb.GetStatusRequest(), timeout=TIMEOUT_S))
    question = ppb.RepresentRequest(sender="museum")
    with attacked.door("peers", museum) as channel:
        peer = PeerStub(channel)
        yield outcome(lambda: list(peer.Represent(iter([question]), timeout=TIMEOUT_S)))


def _stranger_registers(attacked: AttackedFederation) -> Result:
    registration = cpb.RegisterRequest(
        federation="trial", protocol_version=PROTOCOL_VERSION, client="museum", nonce="hostile"
    )
    with attacked.door("coordinator", attacked.authority.issue("museum")) as channel:
        stub = CoordinatorStub(channel)
        return outcome(lambda: stub.Register(registration, timeout=TIMEOUT_S))


def _others_application(attacked: AttackedFederation) -> Result:
    with attacked.door("predictions", attacked.authority.issue("shop/crm")) as channel:
        request = pb.PredictRequest(ids=attacked.federation.ids)
        return outcome(lambda: PredictionStub(channel).Predict(request, timeout=TIMEOUT_S))


def _made_up_ids(attacked: AttackedFederation) -> Result:
    """Ask about people of one's own invention, and see whether they are aligned with the others."""
    ids = [f"made-up-{number}" for number in range(NUM_MADE_UP)]
    features = tpb.Tensor(
        dtype=tpb.DTYPE_FLOAT32, shape=[NUM_MADE_UP, 5], data=bytes(NUM_MADE_UP * 20)
    )
    request = pb.PredictRequest(ids=ids, array=features)
    history = attacked.federation.site.path / "coordinator-state" / "runs.jsonl"
    before = history.read_text()
    with attacked.door("predictions", attacked.authority.issue("bank/crm")) as channel:
        PredictionStub(channel).Predict(request, timeout=TIMEOUT_S)
    give_up_at = time.monotonic() + ALIGNED_WITHIN_S
    while time.monotonic() < give_up_at and history.read_text() == before:
        time.sleep(0.1)
    return "no alignment" if history.read_text() == before else "an alignment"


def _oversize(attacked: AttackedFederation) -> Result:
    content = b"\x0a" + _varint(HUGE_BYTES) + b"x" * HUGE_BYTES
    for door in DOORS:
        with attacked.door(door, attacked.authority.issue(MEMBERS[door])) as channel:
            yield outcome(lambda c=channel, d=door: call(c, KNOCKS[d], [content]))  # type: ignore[misc]


def _bomb(attacked: AttackedFederation) -> Result:
    packed = raw_http2.message(raw_http2.bomb(BOMB_BYTES), is_compressed=True)
    for door in DOORS:
        with handshake(attacked, door) as connection:
            yield _named(raw_http2.call(connection, KNOCKS[door], [packed], grpc_encoding="gzip"))


def _features(**changes: Any) -> Callable[[AttackedFederation], Result]:
    """Ask for a prediction from features that are no good."""
    good = {"dtype": tpb.DTYPE_FLOAT32, "shape": [1, 5], "data": bytes(20)}
    return lambda attacked: _predict(attacked, tpb.Tensor(**{**good, **changes}))


def _values(value: float) -> Callable[[AttackedFederation], Result]:
    return _features(data=np.full(5, value, "<f4").tobytes())


def _predict(attacked: AttackedFederation, features: tpb.Tensor) -> str:
    request = pb.PredictRequest(ids=["somebody"], array=features)
    with attacked.door("predictions", attacked.authority.issue("bank/crm")) as channel:
        stub = PredictionStub(channel)
        found = outcome(lambda: stub.Predict(request, timeout=TIMEOUT_S))
        if found != "OK":
            return found
        answer = stub.Predict(request, timeout=TIMEOUT_S)
    is_finite = np.isfinite(np.frombuffer(answer.probabilities, "<f4")).all()
    return "a finite prediction" if is_finite and not answer.errors else "nonsense"


def _dtypes(attacked: AttackedFederation) -> Result:
    for dtype in (tpb.DTYPE_FLOAT16, 77):
        yield from [_predict(attacked, tpb.Tensor(dtype=dtype, shape=[1, 5], data=bytes(20)))]  # type: ignore[arg-type]


def _endless(attacked: AttackedFederation, door: str, method: str, message: Any) -> str:
    with attacked.door(door, attacked.authority.issue("shop")) as channel:
        forever = itertools.repeat(message.SerializeToString())
        return outcome(lambda: call(channel, method, forever))


def _floods(
    call_once: Callable[[CoordinatorStub, int], object],
) -> Callable[[AttackedFederation], Result]:
    """Call the coordinator as telco as fast as it answers, on several connections."""

    def attack(attacked: AttackedFederation) -> Result:
        shown, is_over = attacked.authority.issue("telco"), threading.Event()
        made, refused = itertools.count(), threading.Event()

        def flood() -> str:
            end = "OK"
            with attacked.door("coordinator", shown) as channel:
                stub = CoordinatorStub(channel)
                for number in made:
                    end = outcome(lambda: call_once(stub, number))  # noqa: B023
                    if end == TOO_MUCH:
                        refused.set()
                    if is_over.is_set() and (refused.is_set() or number > MOST_CALLS):
                        break
            return TOO_MUCH if refused.is_set() else end

        with ThreadPoolExecutor(FLOODERS) as threads:
            ends = [threads.submit(flood) for _ in range(FLOODERS)]
            slowest_s = _slowest_answer(attacked)
            is_over.set()
        assert slowest_s < MOST_S, f"another member waited for {slowest_s:.2f} s"
        return [end.result() for end in ends]

    return attack


def _slowest_answer(attacked: AttackedFederation) -> float:
    """Ask for the status as bank for some seconds; return how long the slowest answer took."""
    taken_s = []
    with attacked.door("coordinator", attacked.authority.issue("bank")) as channel:
        stub = CoordinatorStub(channel)
        for _ in range(60):
            begun_at = time.monotonic()
            stub.GetStatus(cpb.GetStatusRequest(), timeout=TIMEOUT_S)
            taken_s.append(time.monotonic() - begun_at)
            time.sleep(0.05)
    return max(taken_s)


def _register(stub: CoordinatorStub, number: int) -> object:
    return stub.Register(
        cpb.RegisterRequest(
            federation="trial",
            protocol_version=PROTOCOL_VERSION,
            client="telco",
            nonce=f"hostile {number}",
            address=f"127.0.0.1:{number % 60_000 + 1}",
        ),
        timeout=TIMEOUT_S,
    )


def _open_session(stub: CoordinatorStub, number: int) -> object:
    beat = cpb.Heartbeat(client="telco", incarnation=number + 1000)
    return list(stub.Session(iter([beat]), timeout=TIMEOUT_S))


def _ask_status(stub: CoordinatorStub, number: int) -> object:
    return stub.GetStatus(cpb.GetStatusRequest(), timeout=TIMEOUT_S)


def _trickle(attacked: AttackedFederation) -> Result:
    """Send one byte of the first message each second, at several calls at once."""
    calls = [
        (door, path)
        for door, methods in METHODS.items()
        for path, method in methods.items()
        if method.client_streaming
    ]

    def drip(door: str, path: str) -> str:
        with handshake(attacked, door) as connection:
            return _named(raw_http2.call(connection, path, _slowly(raw_http2.message(bytes(60)))))

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda each: drip(*each), calls))


def _half_a_message(attacked: AttackedFederation) -> Result:
    """Begin every call as somebody who may make none, and leave its message unfinished."""
    signer = attacked.authority.of["shop"]
    shown = forge(attacked.directory, signer, uris=["spiffe://other/client/shop"])
    half = raw_http2.message(bytes(1000))[:500]
    for door, methods in METHODS.items():
        for path in methods:
            with handshake(attacked, door, shown=shown) as connection:
                yield _named(raw_http2.call(connection, path, [half], is_whole=False))


def _slowly(content: bytes) -> Iterable[bytes]:
    for byte in content:
        yield bytes([byte])
        time.sleep(1)


def _too_many_calls(attacked: AttackedFederation) -> Result:
    """Hold many streams open at once; those that are too many end at once."""
    channel = attacked.door("peers", attacked.authority.issue("shop"))
    with channel:
        held = [
            channel.stream_stream(KNOCKS["peers"])(_never(), timeout=2) for _ in range(MANY_CALLS)
        ]
        ends = [outcome(lambda call=call: list(call)) for call in held]  # type: ignore[misc]
    assert ends.count("DEADLINE_EXCEEDED") < MANY_CALLS / 2
    return set(ends) - {"DEADLINE_EXCEEDED"}


def _never() -> Iterable[bytes]:
    """Say nothing, for longer than the call lasts."""
    threading.Event().wait(3)
    yield from ()


def _named(status: str) -> str:
    """Return a status as gRPC names it, where it has come as a number."""
    number, _, error = status.partition(" ")
    return " ".join(filter(None, (STATUS_NAMES.get(number, CLOSED), error)))


def _varint(number: int) -> bytes:
    parts = []
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def _tiny_parts(attacked: AttackedFederation) -> Result:
    """Messages of a megabyte, each of half a million frames, or links, with nothing in them."""
    shown = attacked.authority.issue("shop")
    who = cpb.Heartbeat(client="shop", incarnation=1).SerializeToString()
    hello = ppb.Frame(kind=ppb.FRAME_KIND_HELLO, sender="shop").SerializeToString()
    links = bytes([cpb.Heartbeat.LINKS_FIELD_NUMBER << 3 & 0x7F | 0x82, 1, 0])
    frames = bytes([ppb.Frame.MORE_FIELD_NUMBER << 3 | 2, 0])
    for door, method, head, part in (
        ("coordinator", "/laser_vfl.v1.Coordinator/Session", who, links),
        ("peers", "/laser_vfl.v1.Peer/Exchange", hello, frames),
    ):
        content = head + part * (CHUNK_BYTES // len(part) - 100)
        with attacked.door(door, shown) as channel:
            yield outcome(lambda c=channel, m=method, b=content: call(c, m, [b]))  # type: ignore[misc]


DOING: dict[str, Callable[[AttackedFederation], Result]] = {
    "no certificate": lambda attacked: knock(attacked, None),
    "plaintext": _plaintext,
    "TLS 1.2": _tls_1_2,
    "TLS 1.2 by openssl": _openssl,
    "foreign authority": _foreign,
    "expired certificate": _forged("bank", uris=[BANK], dns=BANK_DNS, age=timedelta(days=3)),
    "certificate of tomorrow": _forged("bank", uris=[BANK], dns=BANK_DNS, age=-timedelta(days=1)),
    "no name": _forged("bank", uris=[], dns=BANK_DNS),
    "two names": _forged("bank", uris=[BANK, "spiffe://trial/client/shop"], dns=BANK_DNS),
    "another federation": _forged("bank", uris=["spiffe://other/client/bank"], dns=BANK_DNS),
    "B's authority signs A": _forged("telco", uris=[BANK], dns=BANK_DNS),
    "B's limited authority signs A": _forged("shop", uris=[BANK], dns=BANK_DNS),
    "B's limited authority signs A's id": _forged("shop", uris=[BANK]),
    "another server": _another_server,
    "B claims to be A at the coordinator": _claims_at_coordinator,
    "B claims to be A at a peer": lambda attacked: _peer_calls(attacked, "shop", "telco"),
    "not on the roster": _stranger,
    "not on the roster, registers": _stranger_registers,
    "coordinator wants representations": lambda attacked: [
        *_peer_calls(attacked, "coordinator", "coordinator"),
        *_peer_calls(attacked, "coordinator", "shop"),
    ],
    "another's application": _others_application,
    "made-up ids are aligned": _made_up_ids,
    "oversize message": _oversize,
    "many tiny parts": _tiny_parts,
    "gzip bomb": _bomb,
    "shape overflow": _features(shape=[2**31, 2**31]),
    "wrong dtype": _dtypes,
    "short data": _features(data=bytes(16)),
    "NaN": _values(float("nan")),
    "Inf": _values(float("inf")),
    "1e30": _values(1e30),
    "endless questions": lambda attacked: _endless(
        attacked,
        "peers",
        KNOCKS["peers"],
        # As long as they may be: two use up the limit of a second, however busy the machine is.
        ppb.RepresentRequest(sender="shop", digests=bytes(MAX_IDS * DIGEST_BYTES)),
    ),
    "endless points": lambda attacked: _endless(
        attacked,
        "peers",
        "/laser_vfl.v1.Peer/HandOn",
        ppb.HandOnRequest(
            alignment="0" * 32, sender="shop", owner="shop", points=bytes(1 << 15)
        ),
    ),
    "endless ids": lambda attacked: _endless(
        attacked,
        "coordinator",
        "/laser_vfl.v1.Coordinator/SubmitIds",
        cpb.SubmitIdsRequest(client="shop", incarnation=999, table=1, blinded=bytes(1 << 15)),
    ),
    "registers without end": _floods(_register),
    "sessions without end": _floods(_open_session),
    "status without end": _floods(_ask_status),
    "trickle": _trickle,
    "half a message": _half_a_message,
    "too many calls": _too_many_calls,
}  # fmt: skip
