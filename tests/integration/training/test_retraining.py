"""One run after another, with the daemons up: who serves what meanwhile, and who takes part."""

import json
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import polars as pl
import pytest

from laser_vfl import Predictor
from laser_vfl.remote.operations import coordinator_status
from laser_vfl.transport.prediction_replies import Predictions
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Authority, Process, Site, eventually

ROSTER = ["bank", "shop"]
SLOW = {
    "representation": "tests.support.data.own_models:slow",
    "representation_options": {"delay_s": 0.06},
}
"""With it a run takes seconds, and so can be watched by commands that have to start first."""
TRAINING = {"epochs": 8, "checkpoint_every": 2}
SHOPS_DATA = {"train": "shop_train.csv", "test": "shop_test.csv", "id": "id", "label": "kind"}


@pytest.fixture(scope="module")
def pair(shared_site: Site) -> Federation:
    return Federation(shared_site, ROSTER, TRAINING, model=SLOW)


@pytest.fixture
def whole(pair: Federation) -> Iterator[Federation]:
    """Two clients, up, idle and with models of the same run."""
    eventually(lambda: _activities(pair) == ["idle", "idle"], "both are idle", 20)
    pair.wait_whole()
    yield pair
    for process in pair.site.processes:
        assert "Traceback" not in process.stderr, process.name


@pytest.mark.core
def test_callers_see_the_old_model_and_then_the_new_one(whole: Federation) -> None:
    (old_run,) = set(whole.runs())
    old_seed = whole.manifest("bank")["training"]["seed"]
    with ExitStack() as stack:
        crowds = {
            name: stack.enter_context(_crowd(whole.predictor(name), whole.ids)) for name in ROSTER
        }
        for crowd in crowds.values():
            eventually(lambda crowd=crowd: len(crowd.answers) > 5, "callers are answered")
        started = _retrained(whole)
        _wait_until_training(whole, started["run"])
        seen = {name: len(crowd.answers) for name, crowd in crowds.items()}
        for name, crowd in crowds.items():
            eventually(lambda crowd=crowd, n=seen[name]: len(crowd.answers) > n + 3, "answers")
        assert whole.status("bank")["training_run"] == started["run"], "it was still training"
        assert {a.run for crowd in crowds.values() for a in crowd.answers} == {old_run}
        eventually(lambda: whole.runs() == [started["run"]] * 2, "both have switched", 60)
        for crowd in crowds.values():
            num = len(crowd.answers)
            eventually(lambda crowd=crowd, n=num: len(crowd.answers) > n + 8, "answers go on")

    new_run = started["run"]
    assert new_run != old_run
    for name, crowd in crowds.items():
        assert crowd.failures == []
        assert _in_order([answer.run for answer in crowd.answers]) == [old_run, new_run]
        right = {old_run: crowd.answers[0]}
        with whole.predictor(name) as predictor:
            right[new_run] = predictor.predict(whole.ids)
        assert right[new_run].run == new_run
        difference = right[new_run].probabilities - right[old_run].probabilities
        assert np.abs(difference).max() > 1e-3
        for answer in crowd.answers:
            assert answer.blocks.all(), (answer.run, answer.peers)
            expected = right[answer.run].probabilities
            np.testing.assert_allclose(answer.probabilities, expected, atol=1e-5)
        training = whole.manifest(name)["training"]
        assert training["seed"] == started["seed"] != old_seed
    assert {whole.manifest(name)["run"] for name in ROSTER} == {new_run}


def test_a_seed_can_be_chosen(whole: Federation) -> None:
    retrain = _retrain(whole, "--seed", "123")
    assert retrain.wait_exit() == 0, retrain.stderr
    run = retrain.stdout.split()[1]
    assert retrain.stdout == f"run {run} has started with seed 123\n"
    _check_switches(whole, run)
    assert [whole.manifest(name)["training"]["seed"] for name in ROSTER] == [123, 123]


def test_a_file_that_was_edited_since_is_refused(whole: Federation) -> None:
    site = whole.site
    before = whole.runs()
    listen = {"listen": site.address}
    same = site.coordinator_config(ROSTER, TRAINING) | listen
    edited = site.coordinator_config(ROSTER, {**TRAINING, "epochs": 9}) | listen
    refused = site.run("retrain", "retrain", "--config", site.write("edited", edited).name)
    assert refused.wait_exit() == 2
    assert "training.epochs is 9 in this file" in refused.stderr
    assert "restart the coordinator" in refused.stderr
    assert refused.stdout == ""
    assert whole.runs() == before
    assert _activities(whole) == ["idle", "idle"]
    taken = site.run("retrain", "retrain", "--config", site.write("same", same).name)
    assert taken.wait_exit() == 0, taken.stderr
    _check_switches(whole, taken.stdout.split()[1])


def test_a_second_request_during_a_run_is_refused(whole: Federation) -> None:
    run = _retrained(whole)["run"]
    _wait_until_training(whole, run)
    refused = _retrain(whole)
    assert refused.wait_exit() == 6
    (line,) = refused.stderr.splitlines()
    assert f"a run is under way: {run}" in line
    assert refused.stdout == ""
    _check_switches(whole, run)


def test_a_run_that_was_asked_for_starts_when_the_missing_come(whole: Federation) -> None:
    before = whole.runs()
    assert whole.clients["shop"].terminate() == 0
    impatient = _retrain(whole, "--timeout", "1s")
    assert impatient.wait_exit() == 7
    (line,) = impatient.stderr.splitlines()
    assert "waiting for shop" in line
    with whole.predictor("bank") as predictor:
        assert set(predictor.predict(whole.ids).block_names) == {"bank"}
    assert whole.status("bank")["model"]["run"] == before[0]

    whole.start("shop")
    eventually(lambda: set(whole.runs()) & set(before) == set(), "both have a new model")
    _check_same_run(whole)


def test_rows_that_were_added_are_learnt_from(whole: Federation) -> None:
    num_samples = _federation_status(whole)["num_samples"]
    num_held = [whole.status(name)["num_held"] for name in ROSTER]
    for name in ROSTER:
        _add_row(whole, name, "newcomer-1")
    _check_switches(whole, _retrained(whole)["run"])
    assert _federation_status(whole)["num_samples"] == num_samples + 1
    assert [whole.status(name)["num_held"] for name in ROSTER] == [num + 1 for num in num_held]
    assert _answer(whole, "bank", ["newcomer-1"]).block_names == ["bank,shop"]


@pytest.mark.core
def test_all_start_again_and_train_only_when_they_are_asked_to(whole: Federation) -> None:
    before, metrics, events = whole.runs(), _metrics(whole), whole.site.events()
    with whole.predictor("bank") as predictor:
        answer = predictor.predict(whole.ids)
    _restart_all(whole)
    whole.wait_whole()
    with whole.predictor("bank") as predictor:
        again = predictor.predict(whole.ids)
    np.testing.assert_allclose(again.probabilities, answer.probabilities, atol=1e-6)
    status = _federation_status(whole)
    assert (status["run"], status["wanted"], status["last_run"]) == (None, False, before[0])
    assert [client["model_run"] for client in status["clients"]] == before
    assert (whole.runs(), _metrics(whole), whole.site.events()) == (before, metrics, events)

    # When they are asked to train, it is with the tables as they are then.
    _add_row(whole, "bank", "newcomer-2")
    _check_switches(whole, _retrained(whole)["run"])
    num_rows = len(pl.read_csv(whole.site.path / "bank_train.csv"))
    assert _federation_status(whole)["num_samples"] == num_rows
    assert _answer(whole, "bank", ["newcomer-2"]).block_names == ["bank"]


def test_a_client_that_lost_its_model_waits_for_an_approval(whole: Federation) -> None:
    before, site = whole.runs(), whole.site
    events = site.events()
    assert whole.clients["shop"].terminate() == 0
    shutil.rmtree(site.path / "shop-state")
    shop = whole.start("shop")
    shop.wait_for("a run does not start by itself")
    eventually(lambda: _federation_status(whole)["requests"] == ["shop"], "its request is shown")
    assert whole.status("shop")["model"] is None
    assert "no model" in whole.status("shop")["activity"]
    listed = _runs(whole, "list", "--format", "json")
    assert json.loads(listed.stdout)["requests"] == ["shop"]
    refused = _runs(whole, "approve", "bank", exit_code=6)
    assert "bank asks for no run" in refused.stderr
    rejected = _runs(whole, "reject", "shop")
    assert rejected.stdout == "the run that shop asks for is rejected\n"
    eventually(lambda: _federation_status(whole)["requests"] == [], "its request is gone")
    assert shop.alive
    assert site.events() == events, "nobody has trained"

    assert shop.terminate() == 0
    whole.start("shop")  # and so it asks again
    eventually(lambda: _federation_status(whole)["requests"] == ["shop"], "it asks again")
    with whole.predictor("bank") as predictor:
        approved = json.loads(_runs(whole, "approve", "shop", "--format", "json").stdout)
        answers: list[Predictions] = []

        def switched() -> bool:
            answers.append(predictor.predict(whole.ids))
            return answers[-1].run != before[0]

        eventually(switched, "bank has a new model")
    assert not any(error for answer in answers for error in answer.errors)
    whole.clients["shop"].wait_for_served()
    assert _check_same_run(whole) == approved["run"] != before[0]


def test_who_would_train_and_leave_is_told_to_wait_or_that_it_is_rejected(
    whole: Federation,
) -> None:
    before = whole.runs()
    assert whole.clients["shop"].terminate() == 0
    config = whole.site.client_config("shop", data=SHOPS_DATA, model=SLOW)
    shop = whole.site.start_client(config, "--exit-after-training")
    shop.wait_for("laser-vfl runs approve shop")
    assert whole.status("bank")["model"]["run"] == before[0]
    _runs(whole, "reject", "shop")
    assert shop.wait_exit() == 7
    assert "was rejected at the coordinator" in shop.stderr

    again = whole.site.start_client(config, "--exit-after-training")
    again.wait_for("laser-vfl runs approve shop")
    _runs(whole, "approve", "shop")
    assert again.wait_exit() == 0
    whole.start("shop")
    eventually(lambda: set(whole.runs()) & set(before) == set(), "both have a new model")


def test_a_client_lost_in_a_retraining_costs_nobody_the_old_model(whole: Federation) -> None:
    old_run = whole.runs()[0]
    run = _retrained(whole)["run"]
    checkpoints = whole.site.path / "shop-state" / "runs" / run / "checkpoints"
    eventually(lambda: list(checkpoints.glob("*.json")), "shop has a checkpoint")
    shop, bank = whole.clients["shop"], whole.clients["bank"]
    shop.signal(signal.SIGKILL)
    assert shop.wait_exit() == -signal.SIGKILL
    with whole.predictor("bank") as predictor:
        answer = predictor.predict(whole.ids)
    assert set(answer.block_names) == {"bank"}
    assert answer.run in (old_run, run)
    assert not any(answer.errors)

    # Whether it comes back before the end or after it, both serve the model of the run.
    whole.start("shop")
    _check_switches(whole, run)
    whole.wait_whole()
    assert bank.alive


def test_a_model_of_another_run_counts_as_missing(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> None:
    roster = ["bank", "shop", "telco"]
    with Site(tmp_path_factory.mktemp("trio"), authority) as site:
        trio = Federation(site, roster, {}, start={"quorum": 2, "after_s": 4.0})
        first = _check_same_run(trio)
        backup = site.path / "telco-backup"
        assert trio.clients["telco"].terminate() == 0
        shutil.copytree(site.path / "telco-state", backup, symlinks=True)

        before = {name: _answer(trio, name) for name in ROSTER}

        second = _retrained(trio)["run"]
        _wait_until_served(trio, ROSTER, second)
        trio.start("telco").wait_ready()
        with trio.predictor("telco") as predictor:  # the others still have what they had before
            eventually(lambda: predictor.predict(trio.ids).blocks.all(), "telco has all blocks")
            assert predictor.predict(trio.ids).run == first
        for name in ROSTER:
            answer = _answer(trio, name)
            assert (answer.run, set(answer.block_names)) == (second, {"bank,shop"})
            assert before[name].run == first
        models = {"bank": second, "shop": second, "telco": first}

        def are_known() -> bool:
            clients = _federation_status(trio)["clients"]
            return {c["client"]: c["model_run"] for c in clients} == models

        eventually(are_known, "the coordinator knows who has which model")
        assert _federation_status(trio)["wanted"] is False, "who has a model wants no run"

        third = _retrained(trio)["run"]
        _wait_until_served(trio, roster, third)
        trio.wait_whole()
        # Shop forgets all but its last two models; telco comes back with what it once had.
        for name in ("shop", "telco"):
            assert trio.clients[name].terminate() == 0
        shutil.rmtree(site.path / "telco-state")
        shutil.copytree(backup, site.path / "telco-state", symlinks=True)
        for name in ("shop", "telco"):
            trio.start(name)
        for name, peer, serves in (
            ("bank", "telco", first),
            ("shop", "telco", first),
            ("telco", "shop", third),
        ):
            expected = f'it has no model of this run; it serves "{serves}"'
            eventually(
                lambda name=name, peer=peer, expected=expected: (
                    _answer(trio, name).peers[peer] == expected
                ),
                f"{peer} tells {name} what it has",
            )
            answer = _answer(trio, name)
            assert answer.run == (first if name == "telco" else third)
            assert not answer.blocks[:, roster.index(peer)].any()
        assert _federation_status(trio)["wanted"] is False


class _Crowd:
    """Callers that ask all the time, and what they got."""

    def __init__(self, predictor: Predictor, ids: list[str]) -> None:
        self.answers: list[Predictions] = []
        self.failures: list[Exception] = []
        self._predictor = predictor
        self._ids = ids
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(3)]
        for thread in self._threads:
            thread.start()

    def disperse(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _call(self) -> None:
        while not self._over.is_set():
            try:
                self.answers.append(self._predictor.predict(self._ids))
            except Exception as error:
                self.failures.append(error)


@contextmanager
def _crowd(predictor: Predictor, ids: list[str]) -> Iterator[_Crowd]:
    with predictor:
        crowd = _Crowd(predictor, ids)
        try:
            yield crowd
        finally:
            crowd.disperse()


def _in_order(runs: list[str]) -> list[str]:
    """The runs as they followed each other; three callers may overtake each other by an answer."""
    return list(dict.fromkeys(runs))


def _retrain(federation: Federation, *options: str) -> Process:
    site = federation.site
    return site.run(
        "retrain", "retrain", "--coordinator", site.address, *site.tls_options, *options
    )


def _runs(federation: Federation, *words: str, exit_code: int = 0) -> Process:
    """Run a command about runs as an operator."""
    site = federation.site
    asked = site.run("runs", "runs", *words, "--coordinator", site.address, *site.tls_options)
    assert asked.wait_exit() == exit_code, asked.stderr
    return asked


def _retrained(federation: Federation) -> dict[str, Any]:
    """Ask for a run and return what the command says of it."""
    retrain = _retrain(federation, "--format", "json")
    assert retrain.wait_exit() == 0, retrain.stderr
    return dict(json.loads(retrain.stdout))


def _wait_until_training(federation: Federation, run: str) -> None:
    for name in federation.roster:
        eventually(
            lambda name=name: any(line["run"] == run for line in federation.site.metrics(name)),
            f"{name} trains",
            30,
        )


def _wait_until_served(federation: Federation, names: list[str], run: str) -> None:
    for name in names:
        eventually(lambda name=name: federation.status(name)["model"]["run"] == run, "switch")


def _federation_status(federation: Federation) -> dict[str, Any]:
    site = federation.site
    assert site.authority is not None
    return coordinator_status(site.address, site.operator_access())


def _activities(federation: Federation) -> list[str]:
    """What the coordinator says that each client does."""
    return [client["activity"] for client in _federation_status(federation)["clients"]]


def _up(federation: Federation) -> list[str]:
    return [c["client"] for c in _federation_status(federation)["clients"] if c["up"]]


def _check_switches(federation: Federation, run: str) -> None:
    eventually(lambda: set(federation.runs()) == {run}, "all have switched")


def _add_row(federation: Federation, name: str, new_id: str) -> None:
    path = federation.site.path / f"{name}_train.csv"
    rows = pl.read_csv(path)
    pl.concat([rows, rows[:1].with_columns(id=pl.lit(new_id))]).write_csv(path)


def _check_same_run(federation: Federation) -> str:
    (run,) = set(federation.runs())
    return run


def _answer(federation: Federation, name: str, ids: list[str] | None = None) -> Predictions:
    with federation.predictor(name) as predictor:
        answer = predictor.predict(ids or federation.ids)
    assert not any(answer.errors)
    return answer


def _metrics(federation: Federation) -> list[list[dict[str, Any]]]:
    return [federation.site.metrics(name) for name in federation.roster]


def _restart_all(federation: Federation) -> None:
    for process in (*federation.clients.values(), federation.coordinator):
        assert process.terminate() == 0
    federation.start_coordinator()
    for name in federation.roster:
        federation.start(name)
    eventually(lambda: _up(federation) == federation.roster, "all are back")
