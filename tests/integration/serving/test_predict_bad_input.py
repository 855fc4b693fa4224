"""Whatever is asked of a serving client, it says what is wrong with it and serves on unharmed."""

import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np
import polars as pl
import pytest

from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.client.tables.pseudonym_table import NAME, PseudonymTable
from laser_vfl.data import blind_ids, read_secret
from laser_vfl.transport.protocol import MAX_IDS
from laser_vfl.v1 import peer_pb2 as rpb
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1 import tensor_pb2 as tpb
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from laser_vfl.v1.prediction_pb2_grpc import PredictionStub
from tests.support.daemons.harness import Authority, Process, Site, eventually, health
from tests.support.data.people import People

pytestmark = pytest.mark.core

TIMEOUT_S = 20.0
DEADLINE_S = 10.0
LABELS = {"bank": "kind", "shop": "flag", "telco": None}
ROSTER = list(LABELS)
SUFFIXES = {"bank": "csv", "shop": "npz", "telco": "csv"}
INVALID = grpc.StatusCode.INVALID_ARGUMENT
UNPREPARED = grpc.StatusCode.FAILED_PRECONDITION
DENIED = grpc.StatusCode.PERMISSION_DENIED
GARBAGE = {
    "ones": b"\xff" * 64,
    "overlong": b"\x0a\xff\xff\xff\xff\x0f",
    "not utf-8": b"\x0a\x04\xff\xfe\xfd\xfc",
    "all bytes": bytes(range(256)),
}


@dataclass
class Target:
    """A federation that serves, what bank said before it could, and what it predicts."""

    site: Site
    authority: Authority
    clients: dict[str, Process] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    unprepared: dict[str, grpc.RpcError] = field(default_factory=dict)
    status_before: pb.ClientStatus = field(default_factory=pb.ClientStatus)
    usual: pb.PredictResponse = field(default_factory=pb.PredictResponse)

    def channel(self, client: str) -> grpc.Channel:
        """Where applications ask, as one of that client's."""
        return self.authority.channel(self.clients[client].wait_predict(), client, f"{client}/crm")

    def predict(self, client: str = "bank", **fields: Any) -> pb.PredictResponse:
        with self.channel(client) as channel:
            request = pb.PredictRequest(**fields)
            return PredictionStub(channel).Predict(request, timeout=TIMEOUT_S)

    def status(self) -> pb.ClientStatus:
        with self.channel("bank") as channel:
            request = pb.GetClientStatusRequest()
            return PredictionStub(channel).GetClientStatus(request, timeout=TIMEOUT_S)

    def represent(
        self, certificate: str, *requests: rpb.RepresentRequest
    ) -> list[rpb.RepresentResponse]:
        """Ask bank for representations as whoever a certificate names."""
        with self.authority.channel(
            self.clients["bank"].wait_ready(), "bank", certificate
        ) as channel:
            return list(PeerStub(channel).Represent(iter(requests), timeout=TIMEOUT_S))

    def digests(self, ids: Sequence[str]) -> Digests:
        secret = read_secret(self.site.path / "id.secret")
        return blind_ids(ids, secret, self.site.federation)

    @property
    def pseudonyms(self) -> PseudonymTable:
        """How bank names people to its peers now."""
        pseudonyms = PseudonymStore(StateDirectory(self.site.path / "bank-state")).read(
            self.usual.run
        )
        assert pseudonyms is not None
        return pseudonyms

    def question(self, **changes: Any) -> rpb.RepresentRequest:
        """What shop may ask bank: about those of the usual samples that both hold."""
        pseudonyms = self.pseudonyms
        names, _ = pseudonyms.names_for(self.digests(self.ids), ROSTER.index("shop"))
        fields = {
            "run": self.usual.run,
            "sender": "shop",
            "alignment": pseudonyms.id,
            "names": names,
        }
        return rpb.RepresentRequest(**{**fields, **changes})

    def check_unharmed(self) -> None:
        """Bank predicts as before, to the last bit."""
        found = self.predict(ids=self.ids, deadline_s=DEADLINE_S)
        assert found.blocks == self.usual.blocks
        assert found.probabilities == self.usual.probabilities
        assert found.run == self.usual.run


@pytest.fixture(scope="module")
def target(shared_site: Site) -> Target:
    site = shared_site
    people = People(100)
    for name, label in LABELS.items():
        people.write(site.path, name, label=label, suffix=SUFFIXES[name], test_share=0.3)
    site.start_coordinator(site.coordinator_config(ROSTER, {}))
    assert site.authority is not None
    target = Target(site, site.authority)
    target.ids = pl.read_csv(site.path / "bank_test.csv")["id"].to_list()
    target.clients["bank"] = _start(site, "bank")
    target.clients["bank"].wait_for("waiting for shop, telco")
    _ask_too_early(target)
    for name in ("shop", "telco"):
        target.clients[name] = _start(site, name)
    for client in target.clients.values():
        client.wait_for_served()
    target.usual = eventually(lambda: _with_all_blocks(target), "bank asks everybody")
    return target


def _start(site: Site, name: str) -> Process:
    suffix = SUFFIXES[name]
    data = {"train": f"{name}_train.{suffix}", "test": f"{name}_test.{suffix}", "id": "id"}
    if LABELS[name]:
        data["label"] = LABELS[name]
    return site.start_client(site.client_config(name, data=data))


def _ask_too_early(target: Target) -> None:
    digests = target.digests(["a"]).tobytes()
    run = rpb.RepresentRequest(run="0" * 32, sender="museum", digests=digests)
    calls: dict[str, Callable[[], object]] = {
        "predict": lambda: target.predict(ids=target.ids),
        "represent": lambda: target.represent("museum", run),
    }
    for name, call in calls.items():
        with pytest.raises(grpc.RpcError) as refused:
            call()
        target.unprepared[name] = refused.value
    target.status_before = target.status()


def _with_all_blocks(target: Target) -> pb.PredictResponse | None:
    response = target.predict(ids=target.ids, deadline_s=DEADLINE_S)
    return response if not any(peer.problem for peer in response.peers) else None


def test_before_the_first_model(target: Target) -> None:
    _check(target, target.unprepared["predict"], UNPREPARED, "bank has no model yet; ask again ")
    _check(target, target.unprepared["represent"], DENIED, '"museum" is not a member')
    assert not target.status_before.HasField("model")
    assert target.status_before.has_head


def test_the_usual_prediction_has_all_kinds_of_blocks(target: Target) -> None:
    assert set(target.usual.blocks) == {0b001, 0b011, 0b101, 0b111}
    assert not target.usual.errors
    target.check_unharmed()


def _columns(**changes: str | list[str] | None) -> dict[str, Any]:
    """Good features of one sample with columns changed, left out (None) or added."""
    values = {f"x{j}": "0.5" for j in range(5)} | changes
    columns = [
        pb.FeatureColumn(name=name, values=[value] if isinstance(value, str) else value)
        for name, value in values.items()
        if value is not None
    ]
    return {"ids": ["somebody"], "columns": pb.FeatureColumns(columns=columns)}


def _array(values: Any, num_ids: int = 1, **changes: Any) -> dict[str, Any]:
    array = np.array(values, dtype="<f4")
    fields = {"dtype": tpb.DTYPE_FLOAT32, "shape": array.shape, "data": array.tobytes()}
    return {
        "ids": [f"somebody {i}" for i in range(num_ids)],
        "array": tpb.Tensor(**{**fields, **changes}),
    }


NAN, INF = float("nan"), float("inf")
GOOD_ROW = [0.5] * 5

REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "the request has no ids; name at least one sample"),
    "features of nobody": (
        {"columns": pb.FeatureColumns()}, "the request has no ids; name at least one sample",
    ),
    "too many ids": (
        {"ids": ["a"] * (MAX_IDS + 1)}, "the request has 10001 ids, at most 10000 are answered",
    ),
    "a long id": (
        {"ids": ["a", "é" * 1025]},
        "the id of sample 2 has 1025 characters, at most 1024 are taken; shorten it",
    ),
    "a long id with features": (_array([GOOD_ROW]) | {"ids": ["a" * 100_000]}, "has 100000 char"),
    "a deadline of zero": ({"ids": ["a"], "deadline_s": 0.0}, "the deadline is 0 s; .*above 0"),
    "a negative deadline": ({"ids": ["a"], "deadline_s": -1.5}, "the deadline is -1.5 s; "),
    "no number as deadline": ({"ids": ["a"], "deadline_s": NAN}, "the deadline is nan s; "),
    "an endless deadline": ({"ids": ["a"], "deadline_s": INF}, "the deadline is inf s; "),
    "no columns": (
        {"ids": ["a"], "columns": pb.FeatureColumns()}, "features without columns; name x0, x1, ",
    ),
    "an unknown column": (_columns(age="1"), 'this client has no feature "age"; it has x0, x1, '),
    "the label as a column": (_columns(kind="red"), 'this client has no feature "kind"; '),
    "an unprintable column": (_columns(**{"a\n\x1b[2J": "1"}), r'no feature "a\?\?\[2J"; it has'),
    "too many values": (
        _columns(x0=["1", "2"]), 'the feature "x0" has 2 values for 1 ids; send one value for each',
    ),
    "NaN in a column": (_columns(x2="nan"), 'the feature "x2" of sample 1 is not a finite number'),
    "infinity in a column": (_columns(x2="-inf"), 'column "x2" is infinite in row 1; '),
    "an overflow in a column": (_columns(x2="1e999"), 'column "x2" is infinite in row 1; '),
    "text in a number's column": (_columns(x4="red"), 'row 1 of column "x4" is text, not a number'),
    "a narrow array": (_array([GOOD_ROW[1:]]), r"expected .* \[1, 5\], got \[1, 4\]; .* x0, x1, "),
    "a wide array": (_array([[*GOOD_ROW, 1.0]]), r"shape \[1, 5\], got \[1, 6\]; "),
    "an array for others": (_array([GOOD_ROW]) | {"ids": ["a", "b"]}, r"\[2, 5\], got \[1, 5\]"),
    "a deep array": (_array([[GOOD_ROW]]), r"\[1, 5\], got \[1, 1, 5\]"),
    "NaN in an array": (
        _array([GOOD_ROW, [*GOOD_ROW[1:], NAN]], 2), "a feature of sample 2 is not a finite number",
    ),
    "infinity in an array": (_array([[*GOOD_ROW[1:], -INF]]), "a feature of sample 1 is not "),
    "a huge shape": (_array([GOOD_ROW], shape=[2**31, 2**31]), "the features do not fit: "),
    "fewer bytes than values": (_array([GOOD_ROW], data=b"1234"), "the features do not fit: "),
    "no type": (_array([GOOD_ROW], dtype=0), "expected a tensor of float32, got dtype 0"),
    "a type that does not exist": (_array([GOOD_ROW], dtype=77), "expected a tensor of float32"),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "says"), REQUESTS.values(), ids=REQUESTS)
def test_a_request_that_cannot_be_answered(
    request_: dict[str, Any], says: str, target: Target
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        target.predict(**request_)
    _check(target, refused.value, INVALID, says)
    target.check_unharmed()


def test_a_client_without_a_head(target: Target) -> None:
    for request in ({"ids": target.ids}, {}):
        with pytest.raises(grpc.RpcError) as refused:
            target.predict("telco", **request)
        says = "telco has no head to predict with; ask bank or shop"
        _check(target, refused.value, UNPREPARED, says)


def test_an_unknown_id_is_an_error_of_its_own_sample(target: Target) -> None:
    """And the largest request that is allowed is answered."""
    ids = ["nobody", *target.ids, " ", "é" * 1024] + ["nobody"] * MAX_IDS
    response = target.predict(ids=ids[:MAX_IDS], deadline_s=DEADLINE_S)
    known = slice(1, 1 + len(target.ids))
    errors = {error.place: error.message for error in response.errors}
    assert errors.keys() == set(range(MAX_IDS)) - set(range(known.start, known.stop))
    assert errors.pop(known.stop) == "the id is empty"
    assert set(errors.values()) == {"bank does not hold this sample"}
    assert response.blocks[known] == target.usual.blocks
    assert not any(response.blocks[known.stop :])
    probabilities = np.frombuffer(response.probabilities, "<f4").reshape(MAX_IDS, 3)[known]
    usual = np.frombuffer(target.usual.probabilities, "<f4").reshape(-1, 3)
    np.testing.assert_allclose(probabilities, usual, rtol=0, atol=1e-6)
    target.check_unharmed()


def test_only_unknown_ids_are_an_answer_too(target: Target) -> None:
    response = target.predict(ids=["nobody", ""])
    assert [error.place for error in response.errors] == [0, 1]
    assert response.blocks == [0, 0]
    target.check_unharmed()


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_random_bytes_from_an_application(garbage: bytes, target: Target) -> None:
    with (
        target.channel("bank") as channel,
        pytest.raises(grpc.RpcError) as refused,
    ):
        channel.unary_unary("/laser_vfl.v1.Prediction/Predict")(garbage, timeout=TIMEOUT_S)
    _check(target, refused.value, INVALID, "a message cannot be read")
    target.check_unharmed()


def test_each_door_answers_only_its_own_questions(target: Target) -> None:
    bank = target.clients["bank"]
    with target.channel("bank") as channel:
        call = PeerStub(channel).Represent(iter([rpb.RepresentRequest()]), timeout=TIMEOUT_S)
        with pytest.raises(grpc.RpcError) as refused:
            list(call)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert health(channel) == "SERVING"
    with target.authority.channel(bank.wait_ready(), "bank", "shop") as channel:
        with pytest.raises(grpc.RpcError) as refused:
            PredictionStub(channel).Predict(pb.PredictRequest(ids=target.ids), timeout=TIMEOUT_S)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


IMPOSTORS = {
    "a stranger": ("museum", "museum", '"museum" is not a member of this federation'),
    "the coordinator": ("coordinator", "coordinator", "coordinator may not call Represent"),
    "a stranger as a member": ("museum", "shop", '/client/museum, not client "shop"'),
    "a member as another": ("shop", "telco", '/client/shop, not client "telco"'),
    "a member as the callee": ("shop", "bank", '/client/shop, not client "bank"'),
    "a member without a name": ("shop", "", '/client/shop, not client ""'),
}


@pytest.mark.parametrize(("certificate", "sender", "says"), IMPOSTORS.values(), ids=IMPOSTORS)
@pytest.mark.parametrize("knows_run", [True, False], ids=["of this run", "of no run"])
def test_representations_are_for_members_only(
    knows_run: bool, certificate: str, sender: str, says: str, target: Target
) -> None:
    run = target.usual.run if knows_run else "0" * 32
    question = target.question(run=run, sender=sender)
    with pytest.raises(grpc.RpcError) as refused:
        target.represent(certificate, question)
    _check(target, refused.value, DENIED, says)
    target.check_unharmed()


MALFORMED = {
    "half a name": ({"names": bytes(6)}, "at most 10000 samples, 12 bytes each, "),
    "a name and a half": ({"names": bytes(18)}, "at most 10000 samples, 12 bytes each, "),
    "too many names": ({"names": bytes(12 * (MAX_IDS + 1))}, "at most 10000 samples, 12 bytes "),
    "half a digest": ({"alignment": "", "digests": bytes(16)}, "samples, 32 bytes each, "),
    "a digest and more": ({"alignment": "", "digests": bytes(33)}, "samples, 32 bytes each, "),
    "too many digests": (
        {"alignment": "", "digests": bytes(32 * (MAX_IDS + 1))}, "at most 10000 samples, 32 bytes ",
    ),
    "names and digests": ({"digests": bytes(32)}, "samples are named by the alignment, and only "),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "says"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_questions_of_a_member(
    changes: dict[str, Any], says: str, target: Target
) -> None:
    before = _counts(target, "shop")
    with pytest.raises(grpc.RpcError) as refused:
        target.represent("shop", target.question(**changes))
    _check(target, refused.value, INVALID, says)
    assert _counts(target, "shop")[2] == before[2]
    target.check_unharmed()


def test_digests_name_nobody_even_to_who_knows_the_key(target: Target) -> None:
    """The key of this federation's digests is known here, as it is not among real clients."""
    digests = target.digests(target.ids).tobytes()
    before = _counts(target, "shop")
    for alignment in ("", target.pseudonyms.id):
        question = target.question(alignment=alignment, names=b"", digests=digests)
        with pytest.raises(grpc.RpcError) as refused:
            target.represent("shop", question)
        _check(target, refused.value, INVALID, "samples are named by the alignment, and only to")
    assert _counts(target, "shop")[2] == before[2]
    target.check_unharmed()


@pytest.mark.parametrize("alignment", ["", "0" * 32, "..", "a" * 5000, "\0"], ids=repr)
def test_names_of_another_alignment_name_nobody(alignment: str, target: Target) -> None:
    before = _counts(target, "shop")
    (answer,) = target.represent("shop", target.question(alignment=alignment))
    assert answer == rpb.RepresentResponse(other_alignment=target.pseudonyms.id)
    assert _counts(target, "shop")[2] == before[2]
    target.check_unharmed()


def test_a_member_can_name_only_people_whom_it_holds_itself(target: Target) -> None:
    """Every name that there is, and many that there are not."""
    pseudonyms = target.pseudonyms
    masks = [group.observed & 0b011 for group in pseudonyms.groups]
    assert set(masks) == {0b00, 0b01, 0b10, 0b11}
    every = [(g, place) for g, group in enumerate(pseudonyms.groups) for place in range(group.size)]
    beyond = [
        (g, place) for g, group in enumerate(pseudonyms.groups) for place in (group.size, 2**64 - 1)
    ]
    unheard = [(len(pseudonyms.groups), 0), (2**31, 0), (2**32 - 1, 2**64 - 1)]
    names = np.array([*every, *beyond, *unheard], dtype=NAME)
    question = target.question(alignment=pseudonyms.id, names=names.tobytes())
    (answer,) = target.represent("shop", question)
    found = np.frombuffer(answer.places, "<u4")
    tables = [pl.read_csv(target.site.path / f"bank_{table}.csv") for table in ("train", "test")]
    digests = target.digests([id for table in tables for id in table["id"]])
    held, _ = pseudonyms.names_for(digests, ROSTER.index("shop"))
    assert np.array_equal(np.sort(names[found]), np.sort(np.frombuffer(held, NAME)))
    assert {masks[group] for group in names[found]["group"].tolist()} == {0b11}
    assert list(answer.representations.shape) == [len(found), 8]

    forbidden = np.delete(names, found)
    assert len(forbidden) > len(beyond) + len(unheard) + 10
    before = _counts(target, "shop")
    question = target.question(alignment=pseudonyms.id, names=forbidden.tobytes())
    (answer,) = target.represent("shop", question)
    assert answer.places == b""
    assert list(answer.representations.shape) == [0, 8]
    changes = np.subtract(_counts(target, "shop"), before)
    assert changes.tolist() == [1, len(forbidden), 0, 0]
    target.check_unharmed()


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_random_bytes_from_a_member(garbage: bytes, target: Target) -> None:
    with target.authority.channel(target.clients["bank"].wait_ready(), "bank", "shop") as channel:
        call = channel.stream_stream("/laser_vfl.v1.Peer/Represent")
        with pytest.raises(grpc.RpcError) as refused:
            list(call(iter([garbage]), timeout=TIMEOUT_S))
    _check(target, refused.value, INVALID, "a message cannot be read")
    target.check_unharmed()


@pytest.mark.parametrize(
    "run", ["", "0" * 32, "..", "../models/{run}", "{run}/", "a" * 5000, "\0"], ids=repr
)
def test_another_run_is_reported_and_nothing_else_told(run: str, target: Target) -> None:
    question = target.question(run=run.format(run=target.usual.run))
    (answer,) = target.represent("shop", question)
    assert answer == rpb.RepresentResponse(other_run=target.usual.run)
    target.check_unharmed()


def test_a_member_gets_what_is_held_and_is_counted(target: Target) -> None:
    """Also in a stream of several questions, each with an answer, and with a name twice."""
    question = target.question()
    held = np.frombuffer(question.names, NAME)
    nobody = np.array([(0, 10**6)] * 5, dtype=NAME)
    names = np.concatenate([held[:2], nobody[:1], held[:1]])
    before = _counts(target, "shop")
    first = target.question(alignment=question.alignment, names=nobody.tobytes())
    second = target.question(alignment=question.alignment, names=names.tobytes(), sender="")
    nothing, some = target.represent("shop", first, second)

    assert nothing.places == b""
    assert list(nothing.representations.shape) == [0, 8]
    assert np.frombuffer(some.places, "<u4").tolist() == [0, 1, 3]
    assert list(some.representations.shape) == [3, 8]
    rows = np.frombuffer(some.representations.data, "<f4").reshape(3, 8)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(rows[0], rows[2], rtol=0, atol=1e-6)
    assert np.abs(rows[0] - rows[1]).max() > 1e-3
    changes = np.subtract(_counts(target, "shop"), before)
    assert changes.tolist() == [2, 9, 3, 0]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (_columns(), "this client's block is an array; send the features as an array"),
        (
            _array([GOOD_ROW[1:]]),
            r"\[1, 5\], got \[1, 4\]; this client's rows have the shape \[5\]",
        ),
        (_array([[*GOOD_ROW[1:], NAN]]), "a feature of sample 1 is not a finite number"),
    ],
    ids=["columns", "narrow", "NaN"],
)
def test_features_of_a_client_whose_block_is_an_array(
    request_: dict[str, Any], says: str, target: Target
) -> None:
    """After all that reads names: from here on there is somebody new, and names change."""
    assert target.predict("shop", **_array([GOOD_ROW])).blocks == [0b010]
    with pytest.raises(grpc.RpcError) as refused:
        target.predict("shop", **request_)
    _check(target, refused.value, INVALID, says)
    assert target.predict("shop", **_array([GOOD_ROW])).blocks == [0b010]


def test_values_that_are_not_known_or_wild_are_allowed(target: Target) -> None:
    for value in ("", "NA", "1e300", "-3.4e38"):
        response = target.predict(**_columns(x2=value))
        assert not response.errors
        assert np.isfinite(np.frombuffer(response.probabilities, "<f4")).all()
    response = target.predict(**_array([[3.4e38, *GOOD_ROW[1:]]]))
    assert np.isfinite(np.frombuffer(response.probabilities, "<f4")).all()


def test_nobody_has_failed_or_logged_a_traceback(target: Target) -> None:
    """Last in this file: it reads what the tests above have caused."""
    assert all(client.alive for client in target.clients.values())
    report = target.site.report()
    assert "Traceback" not in report
    assert "internal error" not in report
    for client in target.clients.values():
        client.signal(signal.SIGTERM)
    assert [client.wait_exit() for client in target.clients.values()] == [0, 0, 0]


def _counts(target: Target, peer: str) -> list[int]:
    (found,) = (p for p in target.status().peers if p.client == peer)
    return [found.num_requests, found.num_ids_asked, found.num_ids_served, found.num_refused]


def _check(target: Target, error: grpc.RpcError, code: grpc.StatusCode, says: str) -> None:
    """A precise status, and words for a person that give nothing away."""
    details = error.details() or ""
    assert error.code() is code, (error.code(), details)
    assert re.search(says, details), details
    assert details.isprintable()
    assert len(details) < 300
    for secret in ("Traceback", "Error", "Exception", "internal", str(target.site.path), ".py"):
        assert secret not in details
