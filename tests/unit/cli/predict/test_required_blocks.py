"""--require-blocks: a sample that lacks a block of a client that is up is an error."""

import json

import pytest

from laser_vfl.cli.predict import predict_command
from laser_vfl.cli.predict.predict_command import PredictOptions, run_predict
from laser_vfl.core.errors import NotReady
from laser_vfl.transport.prediction_replies import decode_predictions
from laser_vfl.v1 import prediction_pb2 as pb
from tests.support.fakes.remote_fake import response_to

SHOP, TELCO = 0b010, 0b100


class FakePredictor:
    """A daemon whose answer is given: samples with a 0b011 block each, and what they lack."""

    def __init__(self, missing, up):
        self._missing, self._up = missing, up

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def predict_batches(self, batches, deadline_s, max_in_flight):
        for ids in batches:
            response = response_to(ids)
            response.missing_blocks.extend(self._missing)
            del response.peers[:]
            response.peers.extend(
                pb.PeerAnswer(client=name, problem="too slow", up=name in self._up)
                for name in ("shop", "telco")
            )
            yield decode_predictions(ids, response)


@pytest.fixture
def score(tmp_path, monkeypatch, capsys):
    def run(missing, up, *, require_blocks=True, as_json=True):
        """Return the summary; what fails has written it all the same."""
        monkeypatch.setattr(
            predict_command, "_predictor", lambda options, daemon: FakePredictor(missing, up)
        )
        ids, out = tmp_path / "ids.csv", tmp_path / "rows.csv"
        ids.write_text("".join(f"{text}\n" for text in ["id", *range(len(missing))]))
        error = None
        try:
            run_predict(
                PredictOptions(ids, "bank:1", out=out, require_blocks=require_blocks),
                as_json=as_json,
            )
        except NotReady as raised:
            error = raised
        said = capsys.readouterr().out
        return (json.loads(said) if as_json else said), error

    return run


def test_what_a_client_that_is_up_did_not_give_is_an_error(score):
    summary, error = score([SHOP, SHOP | TELCO, TELCO, 0], up={"shop"})
    assert (summary["num_lacking"], summary["num_lacking_up"]) == (3, 2)
    assert summary["lacking"] == {"shop": 2, "telco": 2}
    assert error is not None
    assert error.message == "2 samples lack a block of a client that is up: shop"
    said, _ = score([SHOP, SHOP | TELCO, TELCO, 0], up={"shop"}, as_json=False)
    assert "2 samples lack a block of a client that is up\n" in said


def test_what_a_client_that_is_down_did_not_give_is_none(score):
    summary, error = score([TELCO, TELCO, 0], up={"shop"})
    assert (summary["num_lacking"], summary["num_lacking_up"]) == (2, 0)
    assert error is None
    said, error = score([TELCO, TELCO, 0], up={"shop"}, as_json=False)
    assert "a client that is up" not in said
    assert "telco: not had for 2 samples: too slow" in said
    assert error is None


def test_without_the_option_it_is_said_and_no_error(score):
    summary, error = score([SHOP], up={"shop"}, require_blocks=False)
    assert summary["num_lacking_up"] == 1
    assert error is None
