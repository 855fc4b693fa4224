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
import raw_http2
from authorities import Tls, forge
from every_call import METHODS, call
from fortress import DOORS, Fortress, outcome
from table import CLOSED

from laser_vfl.v1 import coordinator_pb2 as cpb
from laser_vfl.v1 import peer_pb2 as ppb
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1 import tensor_pb2 as tpb
from laser_vfl.v1.coordinator_pb2_grpc import CoordinatorStub
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from laser_vfl.v1.prediction_pb2_grpc import PredictionStub
from laser_vfl.wire.authority import Authority
from laser_vfl.wire.certificate_files import init_authority
from laser_vfl.wire.protocol import PROTOCOL_VERSION

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
HUGE_BYTES = 5 << 20
BOMB_BYTES = 256 << 20

Result = str | Iterable[str]


def doing(name: str, fortress: Fortress) -> str:
    """Attack, and return all ways in which it ended."""
    found = DOING[name](fortress)
    return found if isinstance(found, str) else ", ".join(sorted(set(found)))


def knock(fortress: Fortress, shown: Tls | None) -> list[str]:
    """Make a call at every door."""
    ends = []
    for door in DOORS:
        with fortress.door(door, shown) as channel:
            ends.append(outcome(lambda c=channel, d=door: call(c, KNOCKS[d], [b""])))  # type: ignore[misc]
    return ends


def _forged(signer: str, **says: Any) -> Callable[[Fortress], Result]:
    """Show a certificate of one of the federation's authorities that says something else."""

    def attack(fortress: Fortress) -> Result:
        return knock(fortress, forge(fortress.directory, fortress.authority.of[signer], **says))

    return attack


def _foreign(fortress: Fortress) -> Result:
    own: Authority = init_authority(fortress.directory / "ca", "trial", now=datetime.now(UTC))
    return knock(fortress, forge(fortress.directory, own, uris=[BANK], dns=BANK_DNS))


def _plaintext(fortress: Fortress) -> Result:
    for door in DOORS:
        with grpc.insecure_channel(fortress.address(door)) as channel:
            yield outcome(lambda c=channel, d=door: call(c, KNOCKS[d], [b""]))  # type: ignore[misc]


def handshake(
    fortress: Fortress, door: str, version: Any = None, shown: Tls | None = None
) -> ssl.SSLSocket:
    """Shake hands at a door, unless told otherwise as somebody who is let in there."""
    to = "coordinator" if door == "coordinator" else "bank"
    ca = str(fortress.authority.directory / to / "ca.pem")
    name = fortress.authority.identity(to).dns
    shown = shown or fortress.authority.issue(MEMBERS[door])
    return raw_http2.tls_socket(fortress.address(door), name, ca, shown, version=version)


def _tls_1_2(fortress: Fortress) -> Result:
    for door in DOORS:
        with handshake(fortress, door, ssl.TLSVersion.TLSv1_3):
            pass  # with the version that is spoken here, the same program gets in
        try:
            with handshake(fortress, door, ssl.TLSVersion.TLSv1_2) as connection:
                yield _named(raw_http2.call(connection, KNOCKS[door], [raw_http2.message(b"")]))
        except (ssl.SSLError, ConnectionError):
            yield CLOSED


def _openssl(fortress: Fortress) -> Result:
    for door in DOORS:
        shown = fortress.authority.issue(MEMBERS[door])
        ends = {}
        for version in ("-tls1_3", "-tls1_2"):
            command = ["openssl", "s_client", version, "-alpn", "h2"]
            command += ["-connect", fortress.address(door)]
            command += ["-cert", shown["cert"], "-key", shown["key"]]
            found = subprocess.run(
                command, input=b"", capture_output=True, timeout=TIMEOUT_S, check=False
            )
            ends[version] = CLOSED if b"Cipher is (NONE)" in found.stdout else "OK"
        assert ends["-tls1_3"] == "OK"
        yield ends["-tls1_2"]


def _another_server(fortress: Fortress) -> Result:
    address, crm = fortress.address("predictions", "telco"), fortress.authority.issue("bank/crm")
    with fortress.authority.channel_with(address, "bank", crm) as channel:
        return outcome(lambda: call(channel, KNOCKS["predictions"], [b""]))


def _claims_at_coordinator(fortress: Fortress) -> Result:
    registration = cpb.RegisterRequest(
        federation="trial", protocol_version=PROTOCOL_VERSION, client="bank", nonce="hostile"
    )
    beat = cpb.Heartbeat(client="bank", incarnation=1, state=cpb.CLIENT_STATE_GONE)
    who = {"client": "bank", "incarnation": 1, "alignment": "0" * 32}
    with fortress.door("coordinator", fortress.authority.issue("shop")) as channel:
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


def _peer_calls(fortress: Fortress, caller: str, sender: str) -> Result:
    """Ask bank for everything that clients ask each other."""
    hello = ppb.Frame(kind=ppb.FRAME_KIND_HELLO, sender=sender, run="0" * 32)
    points = ppb.HandOnRequest(sender=sender, owner=sender, alignment="0" * 32, table=1)
    question = ppb.RepresentRequest(sender=sender)
    with fortress.door("peers", fortress.authority.issue(caller)) as channel:
        stub = PeerStub(channel)
        yield outcome(lambda: list(stub.Represent(iter([question]), timeout=TIMEOUT_S)))
        yield outcome(lambda: list(stub.Exchange(iter([hello]), timeout=TIMEOUT_S)))
        yield outcome(lambda: stub.HandOn(iter([points]), timeout=TIMEOUT_S))


def _stranger(fortress: Fortress) -> Result:
    museum = fortress.authority.issue("museum")
    with fortress.door("coordinator", museum) as channel:
        stub = CoordinatorStub(channel)
        yield outcome(lambda: stub.GetStatus(cpb.GetStatusRequest(), timeout=TIMEOUT_S))
    question = ppb.RepresentRequest(sender="museum")
    with fortress.door("peers", museum) as channel:
        peer = PeerStub(channel)
        yield outcome(lambda: list(peer.Represent(iter([question]), timeout=TIMEOUT_S)))


def _stranger_registers(fortress: Fortress) -> Result:
    registration = cpb.RegisterRequest(
        federation="trial", protocol_version=PROTOCOL_VERSION, client="museum", nonce="hostile"
    )
    with fortress.door("coordinator", fortress.authority.issue("museum")) as channel:
        stub = CoordinatorStub(channel)
        return outcome(lambda: stub.Register(registration, timeout=TIMEOUT_S))


def _others_application(fortress: Fortress) -> Result:
    with fortress.door("predictions", fortress.authority.issue("shop/crm")) as channel:
        request = pb.PredictRequest(ids=fortress.federation.ids)
        return outcome(lambda: PredictionStub(channel).Predict(request, timeout=TIMEOUT_S))


def _oversize(fortress: Fortress) -> Result:
    content = b"\x0a" + _varint(HUGE_BYTES) + b"x" * HUGE_BYTES
    for door in DOORS:
        with fortress.door(door, fortress.authority.issue(MEMBERS[door])) as channel:
            yield outcome(lambda c=channel, d=door: call(c, KNOCKS[d], [content]))  # type: ignore[misc]


def _bomb(fortress: Fortress) -> Result:
    packed = raw_http2.message(raw_http2.bomb(BOMB_BYTES), is_compressed=True)
    for door in DOORS:
        with handshake(fortress, door) as connection:
            yield _named(raw_http2.call(connection, KNOCKS[door], [packed], grpc_encoding="gzip"))


def _features(**changes: Any) -> Callable[[Fortress], Result]:
    """Ask for a prediction from features that are no good."""
    good = {"dtype": tpb.DTYPE_FLOAT32, "shape": [1, 5], "data": bytes(20)}
    return lambda fortress: _predict(fortress, tpb.Tensor(**{**good, **changes}))


def _values(value: float) -> Callable[[Fortress], Result]:
    return _features(data=np.full(5, value, "<f4").tobytes())


def _predict(fortress: Fortress, features: tpb.Tensor) -> str:
    request = pb.PredictRequest(ids=["somebody"], array=features)
    with fortress.door("predictions", fortress.authority.issue("bank/crm")) as channel:
        stub = PredictionStub(channel)
        found = outcome(lambda: stub.Predict(request, timeout=TIMEOUT_S))
        if found != "OK":
            return found
        answer = stub.Predict(request, timeout=TIMEOUT_S)
    is_finite = np.isfinite(np.frombuffer(answer.probabilities, "<f4")).all()
    return "a finite prediction" if is_finite and not answer.errors else "nonsense"


def _dtypes(fortress: Fortress) -> Result:
    for dtype in (tpb.DTYPE_FLOAT16, 77):
        yield from [_predict(fortress, tpb.Tensor(dtype=dtype, shape=[1, 5], data=bytes(20)))]  # type: ignore[arg-type]


def _endless(fortress: Fortress, door: str, method: str, message: Any) -> str:
    with fortress.door(door, fortress.authority.issue("shop")) as channel:
        forever = itertools.repeat(message.SerializeToString())
        return outcome(lambda: call(channel, method, forever))


def _trickle(fortress: Fortress) -> Result:
    """Send one byte of the first message each second, at several calls at once."""
    calls = [
        (door, path)
        for door, methods in METHODS.items()
        for path, method in methods.items()
        if method.client_streaming
    ]

    def drip(door: str, path: str) -> str:
        with handshake(fortress, door) as connection:
            return _named(raw_http2.call(connection, path, _slowly(raw_http2.message(bytes(60)))))

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda each: drip(*each), calls))


def _half_a_message(fortress: Fortress) -> Result:
    """Begin every call as somebody who may make none, and leave its message unfinished."""
    signer = fortress.authority.of["shop"]
    shown = forge(fortress.directory, signer, uris=["spiffe://other/client/shop"])
    half = raw_http2.message(bytes(1000))[:500]
    for door, methods in METHODS.items():
        for path in methods:
            with handshake(fortress, door, shown=shown) as connection:
                yield _named(raw_http2.call(connection, path, [half], is_whole=False))


def _slowly(content: bytes) -> Iterable[bytes]:
    for byte in content:
        yield bytes([byte])
        time.sleep(1)


def _too_many_calls(fortress: Fortress) -> Result:
    """Hold many streams open at once; those that are too many end at once."""
    channel = fortress.door("peers", fortress.authority.issue("shop"))
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


DOING: dict[str, Callable[[Fortress], Result]] = {
    "no certificate": lambda fortress: knock(fortress, None),
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
    "B claims to be A at a peer": lambda fortress: _peer_calls(fortress, "shop", "telco"),
    "not on the roster": _stranger,
    "not on the roster, registers": _stranger_registers,
    "coordinator wants representations": lambda fortress: [
        *_peer_calls(fortress, "coordinator", "coordinator"),
        *_peer_calls(fortress, "coordinator", "shop"),
    ],
    "another's application": _others_application,
    "oversize message": _oversize,
    "gzip bomb": _bomb,
    "shape overflow": _features(shape=[2**31, 2**31]),
    "wrong dtype": _dtypes,
    "short data": _features(data=bytes(16)),
    "NaN": _values(float("nan")),
    "Inf": _values(float("inf")),
    "1e30": _values(1e30),
    "endless questions": lambda fortress: _endless(
        fortress, "peers", KNOCKS["peers"], ppb.RepresentRequest(sender="shop")
    ),
    "endless points": lambda fortress: _endless(
        fortress,
        "peers",
        "/laser_vfl.v1.Peer/HandOn",
        ppb.HandOnRequest(
            alignment="0" * 32, sender="shop", owner="shop", table=1, points=bytes(1 << 15)
        ),
    ),
    "endless ids": lambda fortress: _endless(
        fortress,
        "coordinator",
        "/laser_vfl.v1.Coordinator/SubmitIds",
        cpb.SubmitIdsRequest(client="shop", incarnation=999, table=1, blinded=bytes(1 << 15)),
    ),
    "trickle": _trickle,
    "half a message": _half_a_message,
    "too many calls": _too_many_calls,
}  # fmt: skip
