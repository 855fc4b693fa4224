"""The predictor against a daemon that answers from a script."""

import subprocess
import sys
import threading
from datetime import UTC, datetime

import grpc
import numpy as np
import polars as pl
import pytest

from laser_vfl.core import errors
from laser_vfl.remote.calls import Access, client_access, coordinator_access
from laser_vfl.remote.operations import client_status
from laser_vfl.remote.predictor import Predictor
from laser_vfl.security.certificate_files import init_authority, issue
from laser_vfl.security.credentials import CredentialFiles, load_credentials
from laser_vfl.security.identity import Identity, client_of
from laser_vfl.v1 import prediction_pb2 as pb
from tests.support.fakes.remote_fake import FakePrediction, response_to, served

pytestmark = pytest.mark.core


@pytest.fixture
def daemon():
    return FakePrediction()


@pytest.fixture
def predictor(daemon):
    with served(daemon) as address, Predictor(address) as predictor:
        yield predictor


def test_ids_of_any_kind_are_sent_as_text(daemon, predictor):
    for ids in (["1", "2"], [1, 2], np.array([1, 2]), pl.Series([1, 2]), (b"1", np.str_("2"))):
        assert predictor.predict(ids).ids == ("1", "2")
        assert list(daemon.requests[-1].ids) == ["1", "2"]
    assert not daemon.requests[-1].HasField("deadline_s")
    assert daemon.requests[-1].WhichOneof("features") is None


@pytest.mark.parametrize("bad", [[1.0], [None], [True], "12", ["\ud800"], [[1]], [b"\xff"]])
def test_ids_that_name_no_sample_are_refused_here(daemon, predictor, bad):
    with pytest.raises(errors.DataError):
        predictor.predict(bad)
    assert not daemon.requests


def test_a_deadline_and_features_are_sent(daemon, predictor):
    predictor.predict(["x"], deadline=0.2, features={"age": [31]})
    request = daemon.requests[-1]
    assert request.deadline_s == 0.2
    assert request.columns.columns[0].values == ["31"]
    for deadline in (0, -1, float("nan"), float("inf"), "1s", True):
        with pytest.raises(errors.ConfigError):
            predictor.predict(["x"], deadline=deadline)


def test_a_daemon_that_does_not_keep_the_deadline_is_left(daemon, predictor, monkeypatch):
    release = threading.Event()
    daemon.answer = lambda request: release.wait(10) and response_to(request.ids)
    monkeypatch.setattr("laser_vfl.remote.predictor.PATIENCE_S", 0.1)
    with pytest.raises(errors.AddressError, match=r"did not answer within 0\.1 s"):
        predictor.predict(["x"])
    release.set()


def test_many_threads_share_a_predictor(predictor):
    results = {}

    def ask(name):
        results[name] = predictor.predict([name]).ids

    threads = [threading.Thread(target=ask, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {str(n): (str(n),) for n in range(8)}


def test_batches_come_in_order_and_are_taken_as_they_are_answered(predictor):
    taken = []

    def batches():
        for number in range(50):
            taken.append(number)
            yield [f"{number}"]

    for number, predictions in enumerate(predictor.predict_batches(batches(), 5.0)):
        assert predictions.ids == (str(number),)
        assert len(taken) <= number + 5
    assert len(taken) == 50


@pytest.mark.parametrize(
    ("code", "details", "trailing", "kind", "text"),
    [
        ("INVALID_ARGUMENT", "no head", [("laser-vfl-error", "DataError")], "DataError", "no head"),
        ("UNAVAILABLE", "busy", [("laser-vfl-error", "AddressError")], "AddressError", "busy"),
        ("UNAVAILABLE", "Socket closed", [], "AddressError", "nobody answers at 127"),
        ("RESOURCE_EXHAUSTED", "queue", [], "LimitExceeded", "is too busy; try again"),
        ("RESOURCE_EXHAUSTED", "message larger than max (9 vs. 8)", [], "DataError", "fewer"),
        ("DEADLINE_EXCEEDED", "", [], "AddressError", "did not answer within"),
        ("UNIMPLEMENTED", "Method not found!", [], "MismatchError", "right address"),
        ("INTERNAL", "internal error, ref=1", [], "ContractError", "internal error, ref=1"),
    ],
)
def test_a_call_that_fails_is_an_error_of_ours(
    daemon, predictor, code, details, trailing, kind, text
):
    daemon.abort = (grpc.StatusCode[code], details, trailing)
    with pytest.raises(errors.LaserError, match=text) as caught:
        predictor.predict(["x"], deadline=0.5)
    assert type(caught.value).__name__ == kind
    assert "\n" not in str(caught.value)


def test_an_answer_that_does_not_fit_is_a_contract_error(daemon, predictor):
    daemon.answer = lambda request: response_to([*request.ids, "another"])
    with pytest.raises(errors.ContractError, match="expected 1"):
        predictor.predict(["x"])


def test_nobody_there():
    with served() as address:
        pass
    with (
        Predictor(address) as predictor,
        pytest.raises(errors.AddressError, match=f"nobody answers at {address}; ") as caught,
    ):
        predictor.predict(["x"])
    assert caught.value.exit_code == 4


def test_somebody_else_there():
    with (
        served() as address,
        Predictor(address) as predictor,
        pytest.raises(errors.MismatchError, match="right address"),
    ):
        predictor.status()


@pytest.mark.parametrize(
    ("address", "files", "kind"),
    [
        ("127.0.0.1", {}, errors.ConfigError),
        ("127.0.0.1:0", {}, errors.ConfigError),
        ("0.0.0.0:7000", {}, errors.ConfigError),
        ("10.0.0.5:7000", {}, errors.IdentityError),
        ("bank.example:7000", {}, errors.IdentityError),
        ("127.0.0.1:7000", {"ca": "ca.pem"}, errors.ConfigError),
        ("127.0.0.1:7000", {"cert": "a", "key": "b"}, errors.ConfigError),
        ("127.0.0.1:7000", {"ca": "no", "cert": "no", "key": "no"}, errors.IdentityError),
    ],
)
def test_where_and_how_to_dial_is_checked_first(address, files, kind):
    with pytest.raises(kind) as caught:
        Predictor(address, **files)
    assert "--insecure" not in str(caught.value)
    assert "configuration" not in str(caught.value)


def test_mutual_tls(daemon, tmp_path):
    now = datetime.now(UTC)
    crm = Identity("churn", "application", "crm", "bank")
    for folder in ("ours", "theirs"):
        authority = init_authority(tmp_path / folder, "churn", now=now)
        issue(authority, tmp_path / folder, [client_of("churn", "bank"), crm], now=now)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    own = CredentialFiles(ours / "bank.pem", ours / "bank.key", ours / "ca.pem")
    files = {"ca": ours / "ca.pem", "cert": ours / "bank-crm.pem", "key": ours / "bank-crm.key"}
    with served(daemon, credentials=load_credentials(own)) as address:
        with Predictor(address, **files) as predictor:
            assert predictor.predict([7]).labels.tolist() == ["b"]
        with (
            Predictor(address, **{**files, "ca": theirs / "ca.pem"}) as stranger,
            pytest.raises(errors.IdentityError) as caught,
        ):
            stranger.predict([7])
        assert "\n" not in str(caught.value)
        with (
            Predictor(address) as plain,
            pytest.raises(errors.AddressError, match="both sides on TLS"),
        ):
            plain.predict([7])


def test_the_status_is_plain(daemon, predictor):
    assert predictor.status()["model"] is None
    daemon.status = pb.ClientStatus(
        client="bank",
        model=pb.ServedModel(
            run="run-1",
            roster=["bank", "shop"],
            scores=[pb.SubsetScore(blocks=3, score=0.5), pb.SubsetScore(blocks=1)],
        ),
        peers=[pb.PeerStatus(client="shop", available=True, usual_s=0.25)],
        subsets=[pb.SubsetCount(blocks=3, num_predicted=7)],
    )
    status = predictor.status()
    assert status["model"]["scores"] == {"bank,shop": 0.5, "bank": None}
    assert status["model"]["score"] is None
    assert status["training_run"] is None
    assert status["subsets"] == {"bank,shop": 7}
    assert status["peers"][0]["usual_s"] == 0.25
    assert status["peers"][0]["problem"] is None
    for key in (*status, *status["model"], *status["peers"][0]):
        assert key in client_status.__doc__
    daemon.status.subsets.add(blocks=4)
    with pytest.raises(errors.ContractError):
        predictor.status()


def test_credentials_of_loopback_are_none():
    for address in ("[::1]:7000", "localhost:7000"):
        assert client_access(address, None, None, None) == Access()
        assert coordinator_access(address, None, None, None) == Access()


def test_applications_load_no_torch():
    code = (
        "import sys, laser_vfl\n"
        "assert not {'numpy', 'grpc', 'pydantic'} & set(sys.modules), 'not light'\n"
        "laser_vfl.Predictor('127.0.0.1:7000').close()\n"
        "import laser_vfl.cli.predict.predict_command, laser_vfl.cli.status\n"
        "import laser_vfl.cli.retrain\n"
        "assert not {'torch', 'polars'} & set(sys.modules), 'heavy'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
