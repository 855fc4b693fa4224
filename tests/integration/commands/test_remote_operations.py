"""status and retrain: what they print, and how they end."""

import io
import json
import time

import pytest
from rich.console import Console

from laser_vfl.cli.retrain import run_retrain
from laser_vfl.cli.status import print_client, print_federation, run_status
from laser_vfl.core import errors
from laser_vfl.v1 import coordinator_pb2, prediction_pb2
from tests.support.fakes.remote_fake import FakeCoordinator, FakePrediction, served

pytestmark = pytest.mark.core

NO_FILES = (None, None, None)
RUN = "e9a97772c1a2652619f3ed0b6e4bd9e2"
OUT_OF_REACH = "out of reach: connection refused by somebody with much to say about it"


def federation(**fields):
    clients = [
        coordinator_pb2.ClientSummary(
            client="bank",
            up=True,
            activity="training",
            model_run=RUN,
            next_step=1_000,
            num_steps=25_000,
            num_samples=3,
        ),
        coordinator_pb2.ClientSummary(client="shop"),
    ]
    return coordinator_pb2.FederationStatus(
        **{"federation": "churn", "clients": clients, "num_samples": 4, **fields}
    )


def shown(print_status, status):
    console = Console(file=io.StringIO(), width=80)
    print_status(status, console)
    text = console.file.getvalue()
    assert "…" not in text, "a table does not fit into a terminal"
    return text


def test_the_status_of_a_federation(capsys):
    status = federation(run="run-1", training=True, seed=7)
    with served(coordinator=FakeCoordinator(status)) as address:
        run_status(address, None, None, NO_FILES, as_json=True)
        asked = json.loads(capsys.readouterr().out)
        run_status(address, None, None, NO_FILES, as_json=False)
    assert "training run run-1 with seed 7" in capsys.readouterr().out
    assert asked["last_run"] is None
    assert asked["clients"][1]["address"] is None
    text = shown(print_federation, asked)
    assert "│ bank   │ yes │ training │ 1000 of 25000 │ e9a97772 │" in text
    assert "75.0%" in text


def told(status, capsys):
    with served(coordinator=FakeCoordinator(status)) as address:
        run_status(address, None, None, NO_FILES, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_the_status_of_a_federation_whose_members_come_and_go(capsys):
    status = federation(
        run="run-1",
        training=True,
        waiting_for=["shop"],
        generation=3,
        members=["bank"],
        checkpoint=800,
        departures=[
            coordinator_pb2.Departure(client="shop", generation=2, reason="it left", at=0.0),
            coordinator_pb2.Departure(client="shop", generation=3, reason="cut\x1b", at=1e300),
        ],
    )
    status.clients[0].num_redone, status.clients[0].num_dropped = 4, 56_789
    asked = told(status, capsys)
    assert (asked["generation"], asked["members"], asked["checkpoint"]) == (3, ["bank"], 800)
    assert (asked["clients"][0]["num_redone"], asked["clients"][0]["num_dropped"]) == (4, 56_789)
    assert asked["departures"][0] == {
        "client": "shop",
        "generation": 2,
        "reason": "it left",
        "at": 0.0,
    }
    text = shown(print_federation, asked)
    assert "training waits for shop\n" in text
    assert "the run under way: generation 3, everybody has the checkpoint of step 800\n" in text
    assert "│ bank   │ yes    │            4 │          56789 │" in text
    assert "│ shop   │ no     │              │                │" in text
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(0))
    assert f"{local} lost shop (generation 2): it left\n" in text
    assert "at some time lost shop (generation 3): cut\\x1b\n" in text


def test_the_members_of_the_last_run_are_told_as_such(capsys):
    asked = told(federation(last_run="run-1", generation=1, members=["bank", "shop"]), capsys)
    assert asked["checkpoint"] is None
    text = shown(print_federation, asked)
    assert "the last run: generation 1, no checkpoint yet\n" in text
    asked = told(federation(), capsys)
    assert (asked["generation"], asked["members"], asked["departures"]) == (None, [], [])
    assert "generation" not in shown(print_federation, asked)


def test_the_status_of_a_client_in_a_run(capsys):
    daemon = FakePrediction()
    daemon.status = prediction_pb2.ClientStatus(
        client="bank",
        training_run="run-1",
        generation=3,
        members=["bank", "telco"],
        num_redone=2,
        num_dropped={"repeated": 4, "earlier life": 1},
        num_offences={"misshapen": 2},
    )
    with served(daemon) as address:
        run_status(None, address, None, NO_FILES, as_json=True)
    asked = json.loads(capsys.readouterr().out)
    assert (asked["generation"], asked["members"], asked["num_redone"]) == (3, ["bank", "telco"], 2)
    assert asked["frames_dropped"] == {"repeated": 4, "earlier life": 1}
    said = (
        "generation 3 with bank, telco; "
        "2 steps redone, 5 frames dropped (1 earlier life, 4 repeated)\n"
    )
    assert f"\n{said}" in shown(print_client, asked)
    assert "\npeers broke the contract: misshapen (2)\n" in shown(print_client, asked)
    asked = {**asked, "training_run": None, "frames_dropped": {}}
    assert "the last run: generation 3 with" in (text := shown(print_client, asked))
    assert "0 frames dropped\n" in text


def test_the_status_of_a_client(capsys):
    daemon = FakePrediction()
    daemon.status = prediction_pb2.ClientStatus(
        client="bank",
        activity="serving [bold]\x1b[31m",
        model=prediction_pb2.ServedModel(
            run="run-1",
            task="binary",
            roster=["bank", "shop"],
            score_name="auroc",
            score=0.875,
            scores=[prediction_pb2.SubsetScore(blocks=3, score=0.5)],
        ),
        peers=[
            prediction_pb2.PeerStatus(client="shop", problem=OUT_OF_REACH, num_wanted=4),
            prediction_pb2.PeerStatus(client="telco", available=True, usual_s=0.0125),
        ],
        subsets=[prediction_pb2.SubsetCount(blocks=1, num_predicted=6)],
    )
    with served(daemon) as address:
        run_status(None, address, None, NO_FILES, as_json=True)
    text = shown(print_client, json.loads(capsys.readouterr().out))
    for said in ("model of run run-1", "auroc", "0.875", "0.500", "12.5", "0.0%"):
        assert said in text
    assert "│ shop  │ no  " in text
    assert f"shop: {OUT_OF_REACH}\n" in text
    assert "[bold]" in text
    assert "\x1b" not in text
    assert "no model yet" in shown(print_client, {**_empty_client(), "model": None})


def _empty_client():
    counts = dict.fromkeys(("num_held", "num_requests", "num_predicted", "num_sample_errors"), 0)
    words = dict.fromkeys(("client", "federation", "release", "activity"), "")
    unknown = dict.fromkeys(("training_run", "serve_problem", "generation", "next_model", "work"))
    return {**counts, **words, **unknown, "peers": []}


def test_a_status_is_of_one_daemon():
    for chosen in ((None,) * 3, ("127.0.0.1:1", "127.0.0.1:2", None)):
        with pytest.raises(errors.ConfigError, match="one coordinator or one client"):
            run_status(*chosen, NO_FILES, as_json=False)


def retrained(*statuses, seed=None, timeout="5s"):
    fake = FakeCoordinator(*statuses)
    with served(coordinator=fake) as address:
        run_retrain(address, None, seed, timeout, NO_FILES, as_json=True)
    return fake


@pytest.fixture(autouse=True)
def _poll_fast(monkeypatch):
    monkeypatch.setattr("laser_vfl.cli.retrain.POLL_S", 0.01)


def test_retrain_waits_until_the_run_is_training(capsys):
    before = federation(last_run="run-1", last_outcome="finished", seed=7)
    gathering = federation(last_run="run-1", last_outcome="finished", wanted=True, seed=99)
    training = federation(last_run="run-1", run="run-2", training=True, seed=99)
    assert retrained(before, gathering, gathering, training).seeds == [None]
    assert json.loads(capsys.readouterr().out) == {"run": "run-2", "seed": 99, "state": "training"}


def test_retrain_notices_a_run_that_was_quick(capsys):
    before = federation(last_run="run-1", last_outcome="finished")
    after = federation(last_run="run-2", last_outcome="finished", seed=5)
    assert retrained(before, after, seed=5).seeds == [5]
    assert json.loads(capsys.readouterr().out) == {"run": "run-2", "seed": 5, "state": "finished"}
    stopped = federation(last_run="run-2", last_outcome="lost shop", seed=5)
    with pytest.raises(errors.TrainingStopped, match="run run-2 has stopped: lost shop"):
        retrained(before, stopped, seed=5)


def test_retrain_gives_up_and_says_who_is_waited_for():
    waiting = federation(wanted=True, seed=99, waiting_for=["shop"])
    with pytest.raises(errors.TrainingStopped) as caught:
        retrained(federation(), waiting, timeout="50ms")
    assert str(caught.value) == (
        "asked for, but the run has not started: waiting for shop; it starts when they are there"
    )
    assert caught.value.exit_code == 7


def test_a_seed_has_limits():
    with pytest.raises(errors.ConfigError, match="seed"):
        retrained(federation(), seed=2**63)
