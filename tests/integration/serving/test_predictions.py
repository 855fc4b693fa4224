"""Predictions of real daemons equal the oracle's, whichever of the clients are alive."""

import json
import math
import signal
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
import torch
from safetensors.torch import load_file

from laser_vfl import Predictor
from laser_vfl.client.tables.pseudonym_table import NAME
from laser_vfl.core.errors import NotReady
from laser_vfl.data import blind_ids, read_secret
from laser_vfl.transport.prediction_replies import Predictions
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People
from tests.support.oracle.single_process import SingleProcess, single_process

pytestmark = pytest.mark.core

TOLERANCE = 1e-6
DEADLINE_S = 5.0
LABELS = {"bank": "kind", "shop": "flag", "telco": None, "clinic": "amount"}
SUFFIXES = {"bank": "csv", "shop": "npz", "telco": "parquet", "clinic": "csv"}
ROSTER = tuple(LABELS)
HEADS = ("bank", "shop", "clinic")
SCORES = {"bank": "accuracy", "shop": "accuracy", "clinic": "r2"}
WALK = (
    *("clinic", "bank", "shop", "bank", "telco", "shop", "bank", "clinic"),
    *("bank", "shop", "telco", "shop", "bank", "shop", "telco"),
)
"""Who is killed, or started again, one after another: everybody is up before the first."""


@dataclass(frozen=True)
class Block:
    """A client's test table as its file has it, and as the oracle represents it."""

    ids: list[str]
    rows: dict[str, int]
    features: npt.NDArray[np.float64]
    representations_nd: torch.Tensor


class Trained:
    """A federation of four that has trained and serves, and its oracle."""

    def __init__(self, site: Site) -> None:
        self.site = site
        people = People(180, seed=11)
        for name, label in LABELS.items():
            people.write(
                site.path,
                name,
                label=label,
                p_hold=0.6,
                p_unlabelled=0.1 if name == "bank" else 0.0,
                num_features=7 if name == "telco" else 5,
                suffix=SUFFIXES[name],
                test_share=0.4,
            )
        site.start_coordinator(site.coordinator_config(ROSTER, {"batch_size": 20, "epochs": 6}))
        self.clients = {name: self._start(name) for name in ROSTER}
        for client in self.clients.values():
            client.wait_for_served()

    @cached_property
    def alone(self) -> SingleProcess:
        """The same federation in this process, trained."""
        alone = single_process(self.site.path)
        alone.oracle.run()
        return alone

    @cached_property
    def blocks(self) -> dict[str, Block]:
        return {name: self._block(name) for name in ROSTER}

    @cached_property
    def scores(self) -> dict[str, dict[str, Any]]:
        """What each client's scores.json says of subsets."""
        paths = {name: self.site.path / f"{name}-state" / "scores.json" for name in HEADS}
        return {name: json.loads(path.read_text())["by_subset"] for name, path in paths.items()}

    @property
    def alive(self) -> frozenset[str]:
        return frozenset(name for name, client in self.clients.items() if client.alive)

    def kill(self, name: str) -> None:
        self.clients[name].signal(signal.SIGKILL)
        assert self.clients[name].wait_exit() == -signal.SIGKILL

    def start_again(self, name: str) -> None:
        self.clients[name] = self._start(name)

    def predictor(self, name: str) -> Predictor:
        return self.clients[name].predictor(DEADLINE_S)

    def available(self, client: str, sample: str, alive: frozenset[str]) -> tuple[str, ...]:
        """Whose blocks of a sample can be had: the client's own, and of the living who hold it."""
        return tuple(
            name
            for name in ROSTER
            if name == client or (name in alive and sample in self.blocks[name].rows)
        )

    def outputs(self, client: str, samples: list[dict[str, int]]) -> torch.Tensor:
        """What the oracle's head makes of the mean representation of each sample's blocks.

        A sample is the row to take from each of the clients that have a block of it.
        """
        fused_nd = torch.stack(
            [
                torch.stack(
                    [self.blocks[k].representations_nd[row] for k, row in sample.items()]
                ).mean(dim=0)
                for sample in samples
            ]
        )
        learner = self.alone.learners[ROSTER.index(client)]
        with learner.evaluating():
            return learner.models["fusion"](fused_nd)  # type: ignore[no-any-return]

    def _start(self, name: str) -> Process:
        suffix = SUFFIXES[name]
        data = {"train": f"{name}_train.{suffix}", "test": f"{name}_test.{suffix}", "id": "id"}
        if LABELS[name]:
            data["label"] = LABELS[name]
        optimizer = {"name": "adam", "lr": 0.01}
        config = self.site.client_config(
            name, data=data, optimizer=optimizer, serving={"align_requests": True}
        )
        return self.site.start_client(config)

    def _block(self, name: str) -> Block:
        ids, features = _read(self.site, name)
        k = ROSTER.index(name)
        learner, table = self.alone.learners[k], self.alone.blocks[k].test
        assert table is not None
        with learner.evaluating():
            representations_nd = learner.models["representation"](table.inputs)
        return Block(ids, {text: i for i, text in enumerate(ids)}, features, representations_nd)


@pytest.fixture(scope="module")
def trained(shared_site: Site) -> Trained:
    return Trained(shared_site)


def test_all_serve_the_models_of_the_oracle(trained: Trained) -> None:
    for name, expected in trained.alone.parameters().items():
        found = load_file(trained.site.path / f"{name}-state" / "model" / "model.safetensors")
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected), name


@pytest.mark.parametrize("client", HEADS)
def test_one_request_mixes_samples_with_different_blocks(client: str, trained: Trained) -> None:
    alive = frozenset(ROSTER)
    predictions = _settled(trained, client, alive)
    held = {trained.available(client, sample, alive) for sample in predictions.ids}
    assert len(held) == 8, "somebody has each set of other blocks"
    assert set(predictions.block_names) == {",".join(names) for names in held}
    assert all(problem == "" for problem in predictions.peers.values())
    _check_equal(trained, client, predictions, alive)


@pytest.mark.parametrize(
    ("client", "form"),
    [
        ("bank", "columns"),
        ("bank", "mappings"),
        ("bank", "array"),
        ("shop", "array"),
        ("clinic", "frame"),
        ("clinic", "array"),
    ],
)
def test_features_may_come_with_the_request(client: str, form: str, trained: Trained) -> None:
    """Rows of this client's table under the ids of people whom only others hold.

    At first they are predicted from these rows alone; an alignment of unaligned ids finds the rest,
    as soon as each of the others has heard of it.
    """
    block = trained.blocks[client]
    elsewhere = {i for name in ROSTER for i in trained.blocks[name].ids} - block.rows.keys()
    ids = [*sorted(elsewhere), "somebody new", block.ids[5]]
    assert len(ids) > 10
    rows = list(range(len(ids)))
    features = _in_form(form, block.features[rows])

    alive = frozenset(ROSTER)
    _settled(trained, client, alive)
    blocks = [trained.available(client, text, alive) for text in ids]
    assert len(set(blocks)) > 3
    expected = [",".join(names) for names in blocks]
    with trained.predictor(client) as predictor:

        def asked() -> Predictions | None:
            predictions = predictor.predict(ids, features=features)
            assert predictions.errors == (None,) * len(ids)
            if predictions.block_names == expected:
                return predictions
            for text, names, wanted in zip(ids, predictions.block_names, blocks, strict=True):
                used = set(names.split(","))
                assert {client} <= used <= set(wanted), f"blocks of {text}"
            return None

        predictions = eventually(asked, f"{client} can name all of them", 30)

    samples = [
        {k: row if k == client else trained.blocks[k].rows[text] for k in names}
        for text, names, row in zip(ids, blocks, rows, strict=True)
    ]
    _check_outputs(trained, client, predictions, trained.outputs(client, samples))


def test_where_digests_are_names_somebody_new_has_all_blocks_at_once(site: Site) -> None:
    """In a federation that aligns by hmac, no alignment of unaligned ids is needed or made."""
    people = People(1, seed=5)
    people.write(site.path, "shop", p_hold=1.0)
    (site.path / "shop_train.csv").rename(site.path / "shop_serve.csv")
    new = pl.read_csv(site.path / "shop_serve.csv").with_columns(id=pl.lit("somebody new"))
    new.write_csv(site.path / "shop_serve.csv")
    federation = Federation(site, ["bank", "shop"], {}, alignment="hmac")
    federation.wait_whole()
    with federation.predictor("bank") as predictor:
        predictions = predictor.predict(["somebody new", "nobody"], features=np.ones((2, 5)))
    assert predictions.block_names == ["bank,shop", "bank"]
    assert predictions.peers == {"shop": ""}

    digests = blind_ids(
        ["somebody new", "nobody"], read_secret(site.path / "id.secret"), site.federation
    )
    run, names = federation.runs()[0], np.zeros(2, dtype=NAME).tobytes()
    by_digest = pb.RepresentRequest(run=run, sender="bank", digests=digests.tobytes())
    by_name = pb.RepresentRequest(run=run, alignment=run, names=names)
    assert site.authority is not None
    address = federation.clients["shop"].wait_ready()
    with site.authority.channel(address, "shop", "bank") as channel:
        some, nothing = PeerStub(channel).Represent(iter([by_digest, by_name]), timeout=DEADLINE_S)
    assert np.frombuffer(some.places, "<u4").tolist() == [0]
    assert nothing == pb.RepresentResponse(other_alignment="none")
    assert site.events() == ["aligned", "started", "finished"]


@pytest.mark.timeout(240)
def test_every_subset_of_living_clients(trained: Trained) -> None:
    """Last but one in this file: one client after another is killed and started again."""
    seen = set()
    for name in WALK:
        if name in trained.alive:
            trained.kill(name)
        else:
            trained.start_again(name)
        alive = trained.alive
        seen.add(alive)
        for client in HEADS:
            if client in alive:
                predictions = _settled(trained, client, alive)
                _check_equal(trained, client, predictions, alive)
        if alive == {"telco"}:
            with trained.predictor("telco") as predictor, pytest.raises(NotReady):
                predictor.predict(trained.blocks["telco"].ids)
    assert len(seen) == 15


def test_nobody_trained_again_or_logged_a_traceback(trained: Trained) -> None:
    """Last in this file: it reads what the tests above have caused."""
    first, later = trained.site.events()[:3], trained.site.events()[3:]
    assert first == ["aligned", "started", "finished"]
    assert set(later) <= {"aligned"}
    assert "Traceback" not in trained.site.report()


def _settled(trained: Trained, client: str, alive: frozenset[str]) -> Predictions:
    """Predict the whole test table, as soon as exactly the living are known to be there."""
    ids = trained.blocks[client].ids
    expected = [",".join(trained.available(client, sample, alive)) for sample in ids]
    with trained.predictor(client) as predictor:

        def asked() -> Predictions | None:
            predictions = predictor.predict(ids)
            assert predictions.errors == (None,) * len(ids)
            return predictions if predictions.block_names == expected else None

        return eventually(asked, f"{client} uses the blocks of {', '.join(sorted(alive))}", 30)


def _check_equal(
    trained: Trained, client: str, predictions: Predictions, alive: frozenset[str]
) -> None:
    blocks = [trained.available(client, sample, alive) for sample in predictions.ids]
    samples = [
        {name: trained.blocks[name].rows[sample] for name in names}
        for sample, names in zip(predictions.ids, blocks, strict=True)
    ]
    _check_outputs(trained, client, predictions, trained.outputs(client, samples))
    assert predictions.score_name == SCORES[client]
    for names, found in zip(blocks, predictions.expected_scores, strict=True):
        expected = trained.scores[client][",".join(names)][SCORES[client]]
        assert found == expected if expected is not None else math.isnan(found)


def _check_outputs(
    trained: Trained, client: str, predictions: Predictions, outputs_no: torch.Tensor
) -> None:
    """Compare with what the head's outputs mean, in each task worked out by hand."""
    labels = trained.alone.blocks[ROSTER.index(client)].labels
    assert labels is not None
    assert predictions.roster == ROSTER
    outputs = outputs_no.double().numpy()
    if client == "clinic":
        assert predictions.task == "regression"
        assert predictions.probabilities is None
        standardised = (predictions.labels - labels.mean) / labels.std
        np.testing.assert_allclose(standardised, outputs[:, 0], rtol=0, atol=TOLERANCE)
        return
    if client == "bank":
        assert predictions.task == "multiclass"
        assert predictions.classes.tolist() == ["blue", "green", "red"]
        powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
        expected = powers / powers.sum(axis=1, keepdims=True)
    else:
        assert predictions.task == "binary"
        assert predictions.classes.tolist() == [0, 1]
        positive = 1 / (1 + np.exp(-outputs[:, 0]))
        expected = np.stack([1 - positive, positive], axis=1)
    assert predictions.probabilities is not None
    np.testing.assert_allclose(predictions.probabilities, expected, rtol=0, atol=TOLERANCE)
    margins = np.sort(expected, axis=1)
    sure = margins[:, -1] - margins[:, -2] > 2 * TOLERANCE
    assert sure.sum() > 0.9 * len(sure)
    chosen = predictions.classes[expected.argmax(axis=1)]
    assert predictions.labels[sure].tolist() == chosen[sure].tolist()


def _read(site: Site, name: str) -> tuple[list[str], npt.NDArray[np.float64]]:
    path = site.path / f"{name}_test.{SUFFIXES[name]}"
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return arrays["id"].tolist(), arrays["x"]
    frame = pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path)
    return frame["id"].to_list(), frame.select(pl.col("^x.*$")).to_numpy()


def _in_form(form: str, features: npt.NDArray[np.float64]) -> Any:
    columns = {f"x{j}": column.tolist() for j, column in enumerate(features.T)}
    return {
        "columns": columns,
        "mappings": [dict(zip(columns, row, strict=True)) for row in features.tolist()],
        "frame": pl.DataFrame(columns),
        "array": features,
    }[form]
