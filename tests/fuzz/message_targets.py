"""Messages of peers, applications and the coordinator, where a client decodes them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc.aio
import numpy as np
import torch
from fuzzing import Read, Target
from hypothesis import strategies as st
from mutation import apart, changed_message, several

from laser_vfl.client.alignment.ring_call import read_call, read_promises
from laser_vfl.client.peers.frame_buffer import FrameBuffer
from laser_vfl.client.peers.peer_stream import PeerStream
from laser_vfl.client.run.membership_follower import MembershipFollower
from laser_vfl.client.serving.limits.fair_budget import FairBudget
from laser_vfl.client.serving.limits.rate_limits import Accounts
from laser_vfl.client.serving.limits.request_cost import RowCost
from laser_vfl.client.serving.peer_answers import Named, Subject, decoded
from laser_vfl.client.serving.representation_service import RepresentationService
from laser_vfl.client.serving.request_rows import RowResolver, check_request
from laser_vfl.client.serving.row_index import RowIndex, Rowset
from laser_vfl.client.session.coordinator_session import stopped_by
from laser_vfl.client.session.member_view import Peer, member_view, read_peers
from laser_vfl.client.session.outcome_checks import OutcomeReader, TableLimits, check_rows
from laser_vfl.core.errors import LaserError
from laser_vfl.data import Encoding, TableSpec, blind_ids, multiply, read_table
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.observability.peer_traffic import PeerTraffic
from laser_vfl.transport.frames import parsed_frame
from laser_vfl.transport.prediction_replies import decode_predictions
from laser_vfl.transport.prediction_requests import encode_request
from laser_vfl.transport.tensor_codec import TensorSpec, decode_array, decode_tensor, encode_tensor
from laser_vfl.v1 import coordinator_pb2 as cpb
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1 import prediction_pb2 as ppb
from laser_vfl.v1 import tensor_pb2
from tests.support.data.client_people import digests_at, name, pseudonym_tables
from tests.support.fakes.local_ring import blinded

ROSTER = ("bank", "shop")
IDS = ("ada", "bob", "cyd")
TENSOR = encode_tensor(torch.arange(6.0).reshape(3, 2), torch.float32)
SPEC = TensorSpec((3, 2), torch.float32)


def _parsed(read: Callable[[Any], object], kind: Any) -> Callable[[Path], Read]:
    """Return what parses one message and reads it; there is nothing to prepare."""
    return lambda _: lambda data: read(kind.FromString(data))


# -- tensors, frames, points


def _read_tensor(message: tensor_pb2.Tensor) -> None:
    for spec in (SPEC, TensorSpec((0, 2), torch.float16), TensorSpec((2,), torch.int64)):
        try:
            assert decode_tensor(message, spec).shape == spec.shape
            assert decode_array(message, spec).shape == spec.shape
        except LaserError:
            continue


def _frame(**fields: Any) -> pb.Frame:
    base: dict[str, Any] = {
        "run": "run-1",
        "generation": 3,
        "step": 5,
        "kind": pb.FRAME_KIND_REPRESENTATION,
        "sender": "shop",
        "incarnation": 2,
        "tensor": TENSOR,
        "receiver": 1,
    }
    return pb.Frame(**base | fields)


FRAMES = [
    _frame(),
    _frame(kind=pb.FRAME_KIND_GRADIENT),
    _frame(kind=pb.FRAME_KIND_HELLO, public_key=bytes(32)),
    _frame(generation=4, step=0),
]


def _held(buffer: FrameBuffer) -> list[pb.Frame]:
    ahead = [frame for frames in buffer._ahead.values() for frame in frames.values()]
    return [*buffer._frames.values(), *ahead]


def _open_frames(_: Path) -> Read:
    """Frames of one stream, after each other; a step takes what it waits for."""

    async def play(frames: list[bytes]) -> None:
        buffer = FrameBuffer()
        buffer.begin(3)
        stream = PeerStream(
            Peer(1, "shop", 2, "shop:1"),
            "run-1",
            buffer,
            lambda: None,
            lambda *_: None,
            PeerTraffic(),
        )
        sent = iter(frames)

        async def read() -> Any:
            data = next(sent, None)
            return grpc.aio.EOF if data is None else parsed_frame(data)

        async def write(_: bytes) -> None:
            """Nobody is there."""

        async def make_room() -> None:
            """Nobody takes a step here; each view ends all waits."""
            generation = 3
            while True:
                await asyncio.sleep(0)
                if not buffer.has_room(1, lambda: None):
                    generation = max([generation, *(f.generation for f in _held(buffer))]) + 1
                    buffer.begin(generation)
                    stream._resume()

        room = asyncio.create_task(make_room())
        try:
            await stream.pump(read, write)
        finally:
            room.cancel()
            held = _held(buffer)
            assert len(held) <= 2
            for frame in held:
                _read_tensor(frame.tensor)

    return lambda data: asyncio.run(play(apart(data)))


SCALAR = bytes([64]) * 32
POINTS = blinded(IDS, "bank")


# -- what peers ask and answer


def _open_answer(_: Path) -> Read:
    subject = Subject("run-1", 2, torch.float32, 10.0)
    asked = digests_at("bank", IDS)

    def read(data: bytes) -> None:
        response = pb.RepresentResponse.FromString(data)
        for named in (Named(asked.tobytes()), Named(b"", "a", np.array([2, 0, 1], dtype="u4"))):
            try:
                answer = decoded(response, subject, named)
            except LaserError:
                continue
            assert len(answer.places) == len(answer.representations)
            assert all(place < len(IDS) for place in answer.places)

    return read


ANSWERS = [
    pb.RepresentResponse(places=np.arange(3, dtype="<u4").tobytes(), representations=TENSOR),
    pb.RepresentResponse(other_run="run-0"),
    pb.RepresentResponse(other_alignment="alignment-0"),
]


class _Model:
    """Represents whatever rows it gets."""

    async def submit(self, inputs: Any) -> torch.Tensor:
        return torch.zeros(len(inputs), 2)


def _served() -> Any:
    ids = ["ada", "bob"]
    pseudonyms = pseudonym_tables((ids, ["ada", "cyd"]))[0]
    rows = Rowset(digests_at("bank", ids), torch.zeros(2, 3), ids)
    return SimpleNamespace(
        model=SimpleNamespace(
            settings=TrainingSettings(representation_dim=2, batch_size=1, epochs=1),
            roster=ROSTER,
            is_asked_by=lambda name: name == "shop",
            concerning=lambda rows, name: rows,
            wire_dtype=torch.float32,
            release=None,
        ),
        max_rows=100,
        pseudonyms=pseudonyms,
        pseudonyms_of=lambda id: pseudonyms if id == pseudonyms.id else None,
        row_index=RowIndex([rows]),
        representation=_Model(),
        row_cost=RowCost(1, 4),
    )


def _open_questions(_: Path) -> Read:
    """Questions of a peer on one stream, by digests and by names."""

    async def play(pieces: list[bytes], is_named: bool) -> None:
        served = _served()
        if not is_named:
            served.pseudonyms = None

        async def get(run: str) -> Any:
            return served if run == "run-1" else None

        service = RepresentationService(
            "bank",
            SimpleNamespace(current=None, get_for_peers=get, served_run="run-1"),  # type: ignore[arg-type]
            Accounts(1e6, 1e9),
            lambda: frozenset(ROSTER),
            SimpleNamespace(count=lambda *_, **__: None),  # type: ignore[arg-type]
            FairBudget(1_000_000_000, "memory"),
        )
        messages = iter(pieces)
        written: list[Any] = []

        async def read() -> Any:
            data = next(messages, None)
            return grpc.aio.EOF if data is None else pb.RepresentRequest.FromString(data)

        async def write(message: Any) -> None:
            written.append(message.SerializeToString())

        await service.serve(None, SimpleNamespace(read=read, write=write))

    def read(data: bytes) -> None:
        for is_named in (True, False):
            try:
                asyncio.run(play(apart(data), is_named))
            except LaserError:
                continue

    return read


QUESTIONS = [
    pb.RepresentRequest(run="run-1", sender="shop", digests=digests_at("bank", IDS).tobytes()),
    pb.RepresentRequest(run="run-1", sender="shop", alignment="alignment-1", names=name(1, 0)),
]


# -- applications


TABLE = "id,age,city\nada,1,rome\nbob,2.5,oslo\n"


def _open_predict(directory: Path) -> Read:
    path = directory / "table.csv"
    path.write_text(TABLE)
    table = read_table(path, TableSpec("id"))
    encoding = Encoding.fit(table)
    unaligned = SimpleNamespace(remember=lambda *_: None)

    def blind(ids: Any) -> Any:
        return blind_ids(list(ids), b"k" * 32, "trial")

    resolver = RowResolver("bank", blind, unaligned)  # type: ignore[arg-type]
    rows = RowIndex([Rowset(blind(table.ids), torch.from_numpy(encoding.apply(table)), table.ids)])
    columns = SimpleNamespace(model=SimpleNamespace(encoding=encoding), max_rows=50, row_index=rows)
    array = SimpleNamespace(
        input_shape=(2,), column_names=None, unused_columns=(), text_columns=(), apply=_as_it_is
    )
    arrays = SimpleNamespace(model=SimpleNamespace(encoding=array), max_rows=50, row_index=rows)

    def read(data: bytes) -> None:
        request = ppb.PredictRequest.FromString(data)
        for model in (columns, arrays):
            try:
                check_request(model, request)
                found = resolver.resolve(model, request, "crm")
            except LaserError:
                continue
            assert len(found.places) == len(found.digests)
            assert len(found.places) + len(found.errors) >= len(request.ids)

    return read


def _as_it_is(table: Any) -> Any:
    return np.ascontiguousarray(table.features, dtype=np.float32)


REQUESTS = [
    ppb.PredictRequest(ids=["ada", "zoe"], deadline_s=0.5),
    encode_request(["ada", "new"], None, {"age": [1.0, None], "city": ["rome", "bern"]}),
    encode_request(["ada", "new"], 0.1, np.ones((2, 2), dtype=np.float32)),
]

PREDICTIONS = [
    ppb.PredictResponse(
        run="run-1",
        task="multiclass",
        classes=["1", "2"],
        class_kind="number",
        roster=ROSTER,
        blocks=[1, 3, 0],
        class_places=[0, 1, 0],
        probabilities=np.full((3, 2), 0.5, dtype="<f4").tobytes(),
        errors=[ppb.SampleError(place=2, message="unknown")],
        scores=[ppb.SubsetScore(blocks=1, score=0.5), ppb.SubsetScore(blocks=3)],
        peers=[ppb.PeerAnswer(client="shop", up=True)],
        missing_blocks=[2, 0, 0],
    ),
    ppb.PredictResponse(task="regression", roster=ROSTER, blocks=[1, 1, 1], values=[1, 2, 3]),
]


def _read_predictions(response: ppb.PredictResponse) -> None:
    found = decode_predictions(IDS, response)
    assert len(found.block_names) == len(found.labels) == len(IDS)


# -- the coordinator


def _member(client: str, incarnation: int, next_step: int = 0) -> cpb.ViewMember:
    address = f"{client}:1"
    return cpb.ViewMember(
        client=client, incarnation=incarnation, address=address, next_step=next_step, has_head=True
    )


def _call(**fields: Any) -> cpb.AlignmentCall:
    members = [
        cpb.AlignmentMember(client=client, incarnation=k, address=f"{client}:1")
        for k, client in enumerate(ROSTER, start=1)
    ]
    commitments = [
        cpb.Commitment(client=client, num_points=3, sha256=bytes(32)) for client in ROSTER
    ]
    base: dict[str, Any] = {
        "id": "run-1",
        "run": "run-1",
        "purpose": cpb.PURPOSE_RUN,
        "members": members,
        "commitments": commitments,
        "number": 1,
    }
    return cpb.AlignmentCall(**base | fields)


DIRECTIVES = [
    cpb.Directive(
        gathering=cpb.Gathering(run="run-1", wanted=True, call=_call()),
        addresses=[cpb.ClientAddress(client="shop", address="shop:1")],
    ),
    cpb.Directive(
        gathering=cpb.Gathering(
            call=_call(id="a", purpose=cpb.PURPOSE_NEWCOMERS),
            refused=cpb.RefusedDryRun(number=2, reason="no"),
        )
    ),
    cpb.Directive(
        training=cpb.Training(
            view=cpb.View(
                run="run-1",
                generation=3,
                members=[_member("bank", 1), _member("shop", 2, 4)],
                seed=7,
                heads=["bank"],
            ),
            stop=2,
            joiners=[cpb.AlignmentMember(client="shop", incarnation=5, address="shop:2")],
            complete=3,
            resume=2,
        )
    ),
    cpb.Directive(stopped=cpb.Stopped(run="run-1", reason="over")),
    cpb.Directive(finished=cpb.Finished(run="run-1")),
]


def _open_directives(_: Path) -> Read:
    """Directives one after the other, as a client that is in a run takes them in."""

    def read(data: bytes) -> None:
        follower = MembershipFollower()
        for piece in apart(data):
            _take_in(cpb.Directive.FromString(piece), follower)

    return read


def _take_in(directive: cpb.Directive, follower: MembershipFollower) -> None:
    if directive.HasField("stopped"):
        str(stopped_by(directive)).encode()
    call = (
        read_call(directive.gathering.call, ROSTER, "bank") if directive.gathering.call.id else None
    )
    if call is not None:
        read_promises(directive.gathering.call, call, 1000)
        for owner in call.names:
            call.hops(owner, "bank")
        assert {call.before("bank"), call.after("bank")} <= set(call.members)
    if not directive.HasField("training"):
        return
    training = directive.training
    view = member_view(training.view, ROSTER, "bank", 1)
    read_peers(training, ROSTER, "bank")
    left_out = training.left_out == "bank"
    follower.hear(training.view.generation, training.stop, view, left_out=left_out)
    if follower.must_stop:
        follower.ended(follower.next_step)
    if follower.may_begin:
        follower.begin().participants(follower.next_step)
    assert follower.stopped >= 0


PIECES = [
    cpb.FetchAlignmentResponse(
        table=cpb.TABLE_TRAIN,
        groups=[cpb.Group(observed=1, size=2), cpb.Group(observed=3, size=1)],
    ),
    cpb.FetchAlignmentResponse(
        table=cpb.TABLE_TRAIN,
        rows=cpb.GroupRows(group=0, rows=np.array([0, 2], dtype="<i8").tobytes()),
    ),
    cpb.FetchAlignmentResponse(
        table=cpb.TABLE_TRAIN,
        rows=cpb.GroupRows(group=1, rows=np.array([1], dtype="<i8").tobytes()),
    ),
]


def _open_outcome(_: Path) -> Read:
    def read(data: bytes) -> None:
        pieces = OutcomeReader({"train": TableLimits(3, 3), "test": TableLimits(0, 0)})
        for piece in apart(data):
            pieces.add(cpb.FetchAlignmentResponse.FromString(piece))
        for alignment in pieces.whole().values():
            check_rows(alignment, 3, 0, len(ROSTER))
            for group, rows in alignment.rows.items():
                assert len(rows) == alignment.groups[group].size

    return read


TARGETS = [
    Target("tensor", changed_message([TENSOR]), _parsed(_read_tensor, tensor_pb2.Tensor)),
    Target("frames", several(changed_message(FRAMES)), _open_frames, share=2),
    Target(
        "points",
        st.lists(
            st.sampled_from([POINTS[at : at + 32] for at in range(0, len(POINTS), 32)])
            | st.binary(min_size=32, max_size=32)
            | st.sampled_from([bytes(32), b"\xff" * 32, bytes([1]) + bytes(31), b"x"]),
            max_size=6,
        ).map(b"".join),
        lambda _: lambda data: multiply(data, SCALAR),
    ),
    Target("represent-response", changed_message(ANSWERS), _open_answer),
    Target("represent-request", several(changed_message(QUESTIONS), 3), _open_questions),
    Target("predict-request", changed_message(REQUESTS), _open_predict, share=2),
    Target(
        "predict-response",
        changed_message(PREDICTIONS),
        _parsed(_read_predictions, ppb.PredictResponse),
    ),
    Target("directives", several(changed_message(DIRECTIVES)), _open_directives, share=2),
    Target("fetched-alignment", several(changed_message(PIECES)), _open_outcome),
]
