"""What a coordinator answers and tells a client, taken in by a session as in a daemon."""

import asyncio
import json
import socket
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio
import pytest
from fuzzing import Read, Target
from google.protobuf.message import DecodeError
from hypothesis import strategies as st
from message_targets import DIRECTIVES, PIECES
from mutation import apart, changed_json, changed_message, several

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.run.requirements import check_required
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.peer_directory import PeerDirectory
from laser_vfl.client.session import peer_address
from laser_vfl.client.session.coordinator_session import (
    ClientInfo,
    PublicationNews,
    ServingStatus,
    Session,
)
from laser_vfl.client.session.outcome_checks import TableLimits
from laser_vfl.client.session.peer_address import DialRule
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.waiting_times import WaitingTimes
from laser_vfl.config.address import Address
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.api.directive_messages import settings_message
from laser_vfl.core.errors import LaserError
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport.grpc_status import error_from, is_ours, retry_after_s
from laser_vfl.transport.message_limits import (
    asking_options,
    exchange_options,
    most_together,
    peer_message_bytes,
)
from laser_vfl.transport.protocol import MAX_TENSOR_BYTES
from laser_vfl.v1 import coordinator_pb2 as pb

RUN = "run-1"
ROSTER = ("bank", "shop")
ME = ClientInfo("trial", "bank", "10.0.0.1:7001", has_head=True)
SETTINGS = TrainingSettings(representation_dim=2, batch_size=2, epochs=1)
CONFIG = """
federation: trial
name: bank
listen: 10.0.0.1:7001
coordinator: 10.0.0.9:7000
state: state
data: {train: table.csv, id: id, label: label}
privacy: {clip: 1.0, noise: 4.0, delta: 1.0e-5, max_epsilon: 100.0}
require: {alignment: ecdh, max_epochs: 100}
"""


class _Channel:
    """A channel on which answers come as they were made up, by the name of the call."""

    is_stale = False

    def __init__(self, answers: Mapping[str, list[bytes]]) -> None:
        self._answers = answers
        self.was_heard = asyncio.Event()
        """Set when the last answer of a stream was taken."""

    @property
    def channel(self) -> "_Channel":
        return self

    def while_fresh(self, _: Any) -> Any:
        return nullcontext()

    def unary_unary(self, path: str, **codec: Any) -> Any:
        async def call(request: Any, **_: Any) -> Any:
            codec["request_serializer"](request)
            return codec["response_deserializer"](self._of(path)[0])

        return call

    def stream_unary(self, path: str, **codec: Any) -> Any:
        async def call(requests: Any, **_: Any) -> Any:
            async for request in requests:
                codec["request_serializer"](request)
            return codec["response_deserializer"](self._of(path)[0])

        return call

    def unary_stream(self, path: str, **codec: Any) -> Any:
        return lambda _: _Answers(self, self._of(path), codec["response_deserializer"])

    def stream_stream(self, path: str, **codec: Any) -> Any:
        return self.unary_stream(path, **codec)

    def _of(self, path: str) -> list[bytes]:
        return self._answers.get(path.rpartition("/")[2]) or [b""]


class _Answers:
    """A stream of answers, which may be cancelled."""

    def __init__(self, channel: _Channel, answers: list[bytes], read: Any) -> None:
        self._channel, self._answers, self._read = channel, iter(answers), read

    def __aiter__(self) -> "_Answers":
        return self

    async def __anext__(self) -> Any:
        try:
            return self._read(next(self._answers))
        except StopIteration:
            self._channel.was_heard.set()
            raise StopAsyncIteration from None
        except BaseException:
            self._channel.was_heard.set()
            raise

    def cancel(self) -> None:
        pass


REGISTERED = [
    pb.RegisterResponse(
        incarnation=3,
        roster=ROSTER,
        training=settings_message(settings),
        alignment="ecdh",
    )
    for settings in (
        SETTINGS,
        SETTINGS.model_copy(update={"masked_gradients": True, "pipeline": 1}),
        SETTINGS.model_copy(update={"wire_precision": "int8", "method": "local"}),
    )
]
ANSWERS: dict[str, list[Any]] = {
    "Register": REGISTERED,
    "SubmitIds": [pb.SubmitIdsResponse(num_ids=2)],
    "DryRun": [pb.DryRunResponse(number=1)],
    "Commit": [pb.CommitResponse()],
    "RefuseAlignment": [pb.RefuseAlignmentResponse()],
    "FetchAlignment": PIECES,
}
CALLS = list(ANSWERS)


def _open_registration(directory: Path) -> Read:
    """What a client makes of the terms, up to the sizes that its port for peers takes."""
    path = directory / "bank.yaml"
    path.write_text(CONFIG)
    config = load_config(path, ClientConfig)

    async def register(data: bytes) -> None:
        session = Session(_Channel({"Register": [data]}), ME, Progress())  # type: ignore[arg-type]
        reply = await session.register(wants_run=True)
        settings, num_clients = reply.settings, len(reply.roster)
        assert ME.client in reply.roster
        assert 0 < peer_message_bytes(settings, num_clients) <= MAX_TENSOR_BYTES
        assert most_together(settings, num_clients) < 2 * MAX_TENSOR_BYTES
        asking_options(settings, num_clients)
        exchange_options(settings, num_clients)
        check_required(config, settings, reply.scheme, reply.roster)

    return lambda data: asyncio.run(register(data))


def _open_answers(_: Path) -> Read:
    """One answer to each call of an alignment."""

    async def ask(session: Session) -> None:
        limits = {"train": TableLimits(3, 3), "test": TableLimits(0, 0)}
        for call in (
            lambda: session.register(wants_run=False),
            lambda: session.commit(RUN, 2, bytes(32)),
            lambda: session.submit_ids(RUN, "train", bytes(64)),
            lambda: session.fetch_alignment(RUN, limits),
            lambda: session.refuse(RUN, "shop", "it does not fit", unreachable=False),
            lambda: session.dry_run(),
            lambda: session.withdraw_dry_run(),
        ):
            with suppress(LaserError, DecodeError):
                await call()

    def read(data: bytes) -> None:
        answers = {CALLS[piece[0] % len(CALLS)]: [piece[1:]] for piece in apart(data) if piece}
        asyncio.run(ask(Session(_Channel(answers), ME, Progress())))  # type: ignore[arg-type]

    return read


def _answers() -> st.SearchStrategy[bytes]:
    """Return answers as bytes: to which call, and its message."""
    return st.integers(0, len(CALLS) - 1).flatmap(
        lambda place: changed_message(ANSWERS[CALLS[place]]).map(lambda data: bytes([place]) + data)
    )


# -- directives, as they come over the session


def _published(directive: pb.Directive) -> pb.Directive:
    said = pb.Directive()
    said.CopyFrom(directive)
    said.publication.CopyFrom(pb.Publication(live=["run-0", RUN], held_run=RUN, held_by=["shop"]))
    for client, address in (("bank", "10.0.0.1:7001"), ("shop", "127.0.0.1:80"), ("hub", "hub:1")):
        said.addresses.add(client=client, address=address)
    return said


class _Serving:
    """The part of a daemon that serves, as far as a directive is about it."""

    def __init__(self, state: StateDirectory, rule: DialRule) -> None:
        self.next_model = NextModel(state, "auto")
        self.peers = PeerDirectory("bank", state, Credentials(), PeerTraffic(), rule.allows)

    def status(self) -> ServingStatus:
        return ServingStatus()

    def learn_addresses(self, addresses: Mapping[str, str]) -> None:
        self.peers.learn_addresses(addresses)

    def hear_publication(self, news: PublicationNews) -> None:
        self.next_model.hear(news)


def _look_up(host: str, *_: Any, **__: Any) -> Any:
    """Resolve names without a network: some are of this machine, some of another, some of none."""
    addresses = ["127.0.0.1", "10.0.0.2", "fe80::1%lo", "169.254.1.1", "::"]
    if len(host) % 6 == 5:
        raise socket.gaierror
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses[len(host) % 6], 0))]


def _open_session(directory: Path) -> Read:
    """Directives over a session, with addresses that are looked up and written down."""
    state = StateDirectory(directory / "state")

    async def hear(pieces: list[bytes]) -> None:
        rule = DialRule(Address.parse(ME.address), dial_local=False)
        serving = _Serving(state, rule)
        channel = _Channel({"Session": pieces})
        times = WaitingTimes(retry_s=60.0)
        session = Session(channel, ME, Progress(), serving, rule, times)  # type: ignore[arg-type]
        session.open()
        async with asyncio.timeout(30):
            await channel.was_heard.wait()
        heart = session._heart
        assert heart is not None
        await session.close()
        if session.latest is not None:
            for entry in session.latest.addresses:
                assert entry.client == "bank" or rule.allows(entry.client, entry.address)
        assert len(serving.peers.known_clients) <= 64
        assert not serving.next_model.is_due
        await serving.peers.close()
        if heart.done() and not heart.cancelled():
            heart.result()

    def read(data: bytes) -> None:
        (state.path / "peers.json").unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(peer_address.socket, "getaddrinfo", _look_up)
            asyncio.run(hear(apart(data)))

    return read


# -- how a call fails

REFUSED = [
    {
        "code": "RESOURCE_EXHAUSTED",
        "details": "too much; come back in 2 s",
        "trailing": [["laser-vfl-error", "LimitExceeded"], ["laser-vfl-retry-after-ms", "2000"]],
    },
    {"code": "UNAVAILABLE", "details": "Socket closed", "trailing": []},
    {"code": "ABORTED", "details": "over", "trailing": [["laser-vfl-error", "AlignmentOver"]]},
]


def _read_refusal(data: bytes) -> None:
    """The status of a call, and what came with it, which others choose."""
    try:
        said = json.loads(data)
        code, details = grpc.StatusCode[str(said["code"])], said["details"]
        trailing = tuple((str(key), str(value)) for key, value in said["trailing"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    text = details if details is None else str(details).encode("utf-8", "replace").decode()
    failed: Any = SimpleNamespace(
        code=lambda: code, details=lambda: text, trailing_metadata=lambda: trailing
    )
    error = error_from(failed, doing="asking")
    assert str(error).isprintable()
    assert len(str(error)) < 5000
    is_ours(failed)
    wait_s = retry_after_s(failed)
    assert wait_s is None or 0 < wait_s <= 1e5
    assert getattr(error, "retry_after_s", 1.0) > 0


TARGETS = [
    Target("registered", changed_message(REGISTERED), _open_registration, share=2),
    Target("coordinator-answers", several(_answers()), _open_answers),
    Target(
        "session", several(changed_message([_published(d) for d in DIRECTIVES]), 4), _open_session
    ),
    Target("refusals", changed_json(REFUSED), lambda _: _read_refusal),
]
