"""The main test: a run of real processes equals the single-process oracle, bit for bit."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.tables.block import Block, table_spec
from laser_vfl.config.loading import load_config
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.data import read_table
from tests.support.daemons.harness import Site
from tests.support.data.mixed_columns import add_mixed_columns
from tests.support.data.people import People
from tests.support.oracle.single_process import SingleProcess, single_process

BATCH_NORM = {
    "representation": "tests.support.data.own_models:batch_norm",
    "representation_options": {"width": 12},
}
DROPOUT = {
    "representation": "tests.support.data.own_models:dropout",
    "fusion": "tests.support.data.own_models:dropout_head",
}
TABULAR = {
    "representation": "tabular",
    "representation_options": {"width": 12, "dropout": 0.2},
    "fusion": "mlp",
    "fusion_options": {"dropout": 0.2},
}
COLOURS = {"epsilon": 2.0, "classes": ["red", "green", "blue", "black"]}
APART = {"representation": "tests.support.data.own_models:numbers_and_codes"}
MOMENTUM = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
COSINE = {"name": "adamw", "lr": 0.01, "weight_decay": 0.01, "schedule": "cosine", "lr_floor": 0.1}


@dataclass(frozen=True)
class Client:
    """What differs from client to client."""

    label: str | None = "kind"
    p_hold: float = 0.7
    p_unlabelled: float = 0.0
    suffix: str = "csv"
    num_features: int = 5
    has_mixed_columns: bool = False
    """Whether its table has categories, dates and gaps besides."""
    data: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=lambda: {"hidden": [12]})
    optimizer: dict[str, Any] = field(default_factory=lambda: {"name": "adam", "lr": 0.01})
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A federation, and what must occur in its run for the comparison to mean something."""

    training: dict[str, Any]
    clients: dict[str, Client]
    num_samples: int = 200
    test_share: float = 0.0
    single_rows: bool = False
    """Whether some client has a step with a single row."""
    observed_sets: int = 3
    """How many observed sets there are at least."""
    alignment: str = "ecdh"
    program: str = "laser_vfl"
    """The module that clients are run by."""


CASES = {
    "two clients, mixed, class weights, scores": Case(
        {"batch_size": 16, "epochs": 5},
        {
            "bank": Client(data={"class_weights": "balanced"}, suffix="parquet"),
            "shop": Client(label="flag", data={"class_weights": "balanced"}),
        },
        test_share=0.2,
    ),
    "two clients, aligned by hmac, rare subsets weigh more": Case(
        {"batch_size": 16, "epochs": 5, "loss_weighting": "availability", "max_loss_weight": 1.3},
        {"bank": Client(), "shop": Client(label="flag", optimizer=MOMENTUM)},
        test_share=0.2,
        alignment="hmac",
    ),
    "two clients, categories, dates and gaps, numbers and codes apart, scores": Case(
        {"batch_size": 16, "epochs": 5},
        {
            "bank": Client(has_mixed_columns=True, data={"scaling": "quantile"}),
            "shop": Client(label="flag", has_mixed_columns=True, model=APART),
        },
        test_share=0.2,
    ),
    "two clients, by pattern, batch norm, one head": Case(
        {"batch_size": 11, "epochs": 3, "batching": "by_pattern"},
        {
            "bank": Client(label=None, model=BATCH_NORM, optimizer=MOMENTUM),
            "shop": Client(p_unlabelled=0.3, model=BATCH_NORM, optimizer=MOMENTUM),
        },
        single_rows=True,
    ),
    "four clients, mixed, four kinds of head, scores": Case(
        {"batch_size": 20, "epochs": 6},
        {
            "bank": Client(p_unlabelled=0.2),
            "shop": Client(label="flag", p_hold=0.5, optimizer=MOMENTUM, suffix="npz"),
            "telco": Client(label=None, num_features=7, optimizer=COSINE),
            "clinic": Client(label="amount", p_unlabelled=0.1, optimizer=COSINE),
        },
        test_share=0.2,
        observed_sets=12,
    ),
    "four clients, as in the paper": Case(
        {"batch_size": 12, "epochs": 3, "preset": "paper"},
        {
            "bank": Client(optimizer=MOMENTUM),
            "shop": Client(optimizer=MOMENTUM, p_hold=0.5),
            "telco": Client(optimizer=MOMENTUM, suffix="npz"),
            "clinic": Client(optimizer=MOMENTUM),
        },
        observed_sets=12,
    ),
    "four clients, mixed, batch norm and dropout, float16": Case(
        {"batch_size": 8, "epochs": 2, "wire_precision": "float16"},
        {
            "bank": Client(model=BATCH_NORM, p_hold=0.2),
            "shop": Client(label=None, model=DROPOUT, optimizer=COSINE),
            "telco": Client(label="amount", model=DROPOUT, p_hold=0.4),
            "clinic": Client(label=None, model=BATCH_NORM, p_hold=0.3),
        },
        observed_sets=12,
        single_rows=True,
    ),
    "four clients, mixed, batch norm and dropout, int8, scores": Case(
        {"batch_size": 20, "epochs": 6, "wire_precision": "int8"},
        {
            "bank": Client(model=BATCH_NORM, p_hold=0.2),
            "shop": Client(label=None, model=DROPOUT, optimizer=COSINE),
            "telco": Client(label="amount", model=DROPOUT, p_hold=0.4),
            "clinic": Client(more={"privacy": {"clip": 1.0, "noise": 0.5}}),
        },
        test_share=0.2,
        observed_sets=12,
    ),
    "three clients, combinatorial, int4, one without a label, scores": Case(
        {"method": "combinatorial", "batch_size": 16, "epochs": 5, "wire_precision": "int4"},
        {
            "bank": Client(optimizer=COSINE),
            "shop": Client(label=None, p_hold=0.5, optimizer=COSINE),
            "telco": Client(label="amount", optimizer=MOMENTUM),
        },
        test_share=0.2,
        observed_sets=7,
    ),
    "four clients, mixed, masked gradients, one without a label, scores": Case(
        {"batch_size": 20, "epochs": 6, "masked_gradients": True, "wire_precision": "float16"},
        {
            "bank": Client(p_unlabelled=0.2),
            "shop": Client(label="flag", p_hold=0.5, optimizer=MOMENTUM),
            "telco": Client(label=None, num_features=7, optimizer=COSINE),
            "clinic": Client(label="amount", model=BATCH_NORM, optimizer=COSINE),
        },
        test_share=0.2,
        observed_sets=12,
    ),
    "four clients, mixed, two with noise, one clipped only, scores": Case(
        {"batch_size": 20, "epochs": 6, "wire_precision": "float16"},
        {
            "bank": Client(more={"privacy": {"clip": 1.0, "noise": 0.5}}),
            "shop": Client(label="flag", p_hold=0.5, optimizer=MOMENTUM),
            "telco": Client(
                label=None, model=DROPOUT, more={"privacy": {"clip": 0.5, "noise": 2.0}}
            ),
            "clinic": Client(label="amount", optimizer=COSINE, more={"privacy": {"clip": 0.3}}),
        },
        test_share=0.2,
        observed_sets=12,
    ),
    "four clients, masked gradients of noisy representations": Case(
        {"batch_size": 20, "epochs": 6, "masked_gradients": True},
        {
            "bank": Client(more={"privacy": {"clip": 1.0, "noise": 0.5}}),
            "shop": Client(label="flag", optimizer=MOMENTUM),
            "telco": Client(label=None, more={"privacy": {"clip": 1.0, "noise": 0.5}}),
            "clinic": Client(optimizer=COSINE),
        },
        observed_sets=12,
    ),
    "four clients, three kinds of private labels, scores": Case(
        {"batch_size": 20, "epochs": 6, "wire_precision": "float16"},
        {
            "bank": Client(
                p_unlabelled=0.2,
                data={"class_weights": "balanced"},
                more={"privacy": {"labels": COLOURS}},
            ),
            "shop": Client(
                label="flag",
                optimizer=MOMENTUM,
                suffix="npz",
                more={"privacy": {"labels": {"epsilon": 1.0}, "clip": 1.0, "noise": 0.5}},
            ),
            "telco": Client(label=None, num_features=7, optimizer=COSINE),
            "clinic": Client(
                label="amount",
                p_unlabelled=0.1,
                optimizer=COSINE,
                more={"privacy": {"labels": {"epsilon": 3.0, "bounds": [4, 15]}}},
            ),
        },
        test_share=0.2,
        observed_sets=12,
    ),
    "three clients, ensemble, private labels of different classes, scores": Case(
        {"method": "ensemble", "batch_size": 12, "epochs": 4},
        {
            "bank": Client(more={"privacy": {"labels": COLOURS}}),
            "shop": Client(optimizer=MOMENTUM),
            "telco": Client(label=None),
        },
        test_share=0.2,
        observed_sets=7,
    ),
    "four clients, by pattern, batch norm, bfloat16": Case(
        {"batch_size": 9, "epochs": 2, "batching": "by_pattern", "wire_precision": "bfloat16"},
        {
            "bank": Client(model=BATCH_NORM, p_hold=0.5, more={"precision": "bfloat16"}),
            "shop": Client(label="flag", model=DROPOUT, optimizer=MOMENTUM, p_hold=0.5),
            "telco": Client(label=None, p_hold=0.5, p_unlabelled=0.0),
            "clinic": Client(model=BATCH_NORM, p_hold=0.5, p_unlabelled=0.5),
        },
        observed_sets=12,
        single_rows=True,
    ),
    "three clients, tabular, mixed columns, dropout, one without a label, scores": Case(
        {"batch_size": 16, "epochs": 5},
        {
            "bank": Client(has_mixed_columns=True, model=TABULAR, optimizer=COSINE),
            "shop": Client(label=None, has_mixed_columns=True, model=TABULAR),
            "telco": Client(label="amount", p_hold=0.5, model=TABULAR, optimizer=COSINE),
        },
        test_share=0.2,
        observed_sets=7,
    ),
    "three clients, local, one without a label, scores": Case(
        {"method": "local", "batch_size": 20, "epochs": 6},
        {
            "bank": Client(p_unlabelled=0.2),
            "shop": Client(label=None),
            "telco": Client(label="flag", model=DROPOUT, optimizer=MOMENTUM),
        },
        test_share=0.2,
        observed_sets=7,
    ),
    "three clients, standard, the second is the active party, scores": Case(
        {"method": "standard", "batch_size": 16, "epochs": 6, "wire_precision": "float16"},
        {
            "bank": Client(label=None, p_hold=0.8, model=DROPOUT),
            "shop": Client(p_hold=0.8, optimizer=COSINE),
            "telco": Client(p_hold=0.8, optimizer=MOMENTUM),
        },
        test_share=0.2,
        observed_sets=7,
    ),
    "four clients, ensemble, three votes and ties, scores": Case(
        {"method": "ensemble", "batch_size": 12, "epochs": 3, "batching": "by_pattern"},
        {
            "bank": Client(p_hold=0.8),
            "shop": Client(optimizer=MOMENTUM, model=BATCH_NORM),
            "telco": Client(label=None),
            "clinic": Client(p_unlabelled=0.2),
        },
        test_share=0.3,
        observed_sets=12,
    ),
    "three clients, combinatorial, mixed, one without a label, scores": Case(
        {"method": "combinatorial", "batch_size": 16, "epochs": 5, "wire_precision": "bfloat16"},
        {
            "bank": Client(optimizer=COSINE),
            "shop": Client(label=None, p_hold=0.5, optimizer=COSINE),
            "telco": Client(label="amount", optimizer=MOMENTUM),
        },
        test_share=0.2,
        observed_sets=7,
    ),
    "four clients, combinatorial, by pattern, batch norm, scores": Case(
        {"method": "combinatorial", "batch_size": 11, "epochs": 3, "batching": "by_pattern"},
        {
            "bank": Client(label=None, model=BATCH_NORM, p_hold=0.5, optimizer=COSINE),
            "shop": Client(label="flag", model=DROPOUT, optimizer=MOMENTUM, p_hold=0.5),
            "telco": Client(label=None, p_hold=0.5, optimizer=COSINE),
            "clinic": Client(model=BATCH_NORM, p_hold=0.5, p_unlabelled=0.3),
        },
        test_share=0.2,
        observed_sets=12,
        single_rows=True,
    ),
    "four clients, plug, the second is the active party, batches drawn once, scores": Case(
        {
            "method": "plug",
            "batch_size": 16,
            "epochs": 5,
            "drop_probability": 0.4,
            "shuffle": "once",
        },
        {
            "bank": Client(label=None, p_hold=0.5, more={"privacy": {"clip": 1.0, "noise": 0.5}}),
            "shop": Client(p_unlabelled=0.2, optimizer=MOMENTUM),
            "telco": Client(model=BATCH_NORM, optimizer=MOMENTUM),
            "clinic": Client(label="amount", optimizer=COSINE),
        },
        test_share=0.2,
        observed_sets=12,
    ),
}


CASES |= {
    f"{name}, pipeline {depth}": replace(
        CASES[name], training=CASES[name].training | more | {"pipeline": depth}
    )
    for name, depth, more in (
        ("two clients, by pattern, batch norm, one head", 1, {}),
        ("four clients, mixed, four kinds of head, scores", 3, {"checkpoint_every": 11}),
        ("four clients, mixed, batch norm and dropout, int8, scores", 1, {"checkpoint_every": 7}),
        ("three clients, combinatorial, int4, one without a label, scores", 3, {}),
        ("four clients, mixed, masked gradients, one without a label, scores", 2, {}),
        ("four clients, mixed, two with noise, one clipped only, scores", 1, {}),
        ("four clients, by pattern, batch norm, bfloat16", 7, {}),
        ("three clients, standard, the second is the active party, scores", 1, {}),
        (
            "three clients, tabular, mixed columns, dropout, one without a label, scores",
            2,
            {},
        ),
    )
}
"""Steps that begin before the last one is applied are nobody's business but the oracle's."""

LONG_FORMS = {
    "three clients, tabular, mixed columns, dropout, one without a label, scores, pipeline 2",
    "two clients, by pattern, batch norm, one head, pipeline 1",
    "four clients, mixed, masked gradients, one without a label, scores, pipeline 2",
    "four clients, mixed, two with noise, one clipped only, scores, pipeline 1",
    "four clients, by pattern, batch norm, bfloat16, pipeline 7",
    "three clients, standard, the second is the active party, scores, pipeline 1",
    "three clients, ensemble, private labels of different classes, scores",
    "two clients, mixed, class weights, scores",
    "two clients, by pattern, batch norm, one head",
    "four clients, as in the paper",
    "four clients, mixed, masked gradients, one without a label, scores",
    "four clients, mixed, two with noise, one clipped only, scores",
    "four clients, by pattern, batch norm, bfloat16",
    "three clients, combinatorial, mixed, one without a label, scores",
}
"""Cases whose methods and settings the others have, too."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[] if name in LONG_FORMS else [pytest.mark.core])
        for name, case in CASES.items()
    ],
)
def test_a_distributed_run_equals_the_oracle(case: Case, site: Site) -> None:
    train(case, site)

    alone = single_process(site.path)
    _check_that_it_is_a_case(case, alone, site.path)
    untrained = {
        name: {key: value.clone() for key, value in tensors.items()}
        for name, tensors in alone.parameters().items()
    }
    alone.oracle.run()

    for name, expected in alone.parameters().items():
        found = load_file(site.path / f"{name}-state" / "model" / "model.safetensors")
        assert found.keys() == expected.keys()
        different = [key for key in expected if not torch.equal(found[key], expected[key])]
        assert not different, f"{name}: {different}"
        changed = [k for k in expected if not torch.equal(expected[k], untrained[name][k])]
        assert bool(changed) == (name in alone.learning), f"{name} has learnt nothing, or too much"
    if case.test_share:
        _check_scores(site, alone)


def train(case: Case, site: Site) -> None:
    people = People(case.num_samples, seed=5)
    for name, client in case.clients.items():
        people.write(
            site.path,
            name,
            p_hold=client.p_hold,
            label=client.label,
            p_unlabelled=client.p_unlabelled,
            num_features=client.num_features,
            suffix=client.suffix,
            test_share=case.test_share,
        )
        if client.has_mixed_columns:
            add_mixed_columns(site.path, name)
    config = site.coordinator_config(list(case.clients), case.training, alignment=case.alignment)
    site.start_coordinator(config)
    clients = [
        site.start_client(
            _config(site, name, client, case), "--exit-after-training", program=[case.program]
        )
        for name, client in case.clients.items()
    ]
    for process in clients:
        assert process.wait_exit(90) == 0, process.name
        assert "out of reach" not in process.stderr, "it ends with its run, as the others do"


def _config(site: Site, name: str, client: Client, case: Case) -> dict[str, Any]:
    data = {"train": f"{name}_train.{client.suffix}", "id": "id", **client.data}
    if case.test_share:
        data["test"] = f"{name}_test.{client.suffix}"
    if client.label is not None:
        data["label"] = client.label
    return site.client_config(
        name, data=data, model=client.model, optimizer=client.optimizer, **client.more
    )


def _check_that_it_is_a_case(case: Case, alone: SingleProcess, directory: Path) -> None:
    steps = alone.num_rows_by_step
    assert 45 <= len(steps) <= 120
    exchanges = case.training.get("method") not in ("local", "ensemble")
    learning = {name for name, client in case.clients.items() if client.label or exchanges}
    assert alone.learning == learning
    masks = [group.observed for group in alone.alignments[0].groups]
    assert len(masks) >= case.observed_sets
    assert any(mask.bit_count() == 1 for mask in masks), "nobody holds a sample alone"
    if case.single_rows:
        norms = [k for k, c in enumerate(case.clients.values()) if c.model is BATCH_NORM]
        assert any(step.get(k) == 1 for step in steps for k in norms)
    for (name, client), block in zip(case.clients.items(), alone.blocks, strict=True):
        assert (block.labels is None) == (client.label is None)
        if "labels" in client.more.get("privacy", {}):
            config = load_config(directory / f"{name}.yaml", ClientConfig)
            _check_that_labels_are_noisy(config, block)
        if client.p_unlabelled and client.label:
            assert block.train.labelled is not None
            assert not block.train.labelled.all()
    for client, block, learner in zip(
        case.clients.values(), alone.blocks, alone.learners, strict=True
    ):
        privacy = client.more.get("privacy", {})
        assert (learner.label_noise is None) == ("labels" not in privacy)
        if "clip" in privacy:
            rows = learner.embed(block.train.inputs)
            assert rows.norm(dim=1).max() == pytest.approx(privacy["clip"]), "it bounds nothing"
            sent = learner.released(rows, Phase.TRAINING, 0)
            assert torch.equal(sent, rows) == (not privacy.get("noise"))


def _check_that_labels_are_noisy(config: ClientConfig, block: Block) -> None:
    assert block.labels is not None
    assert block.train.targets is not None
    table = read_table(config.data.train, table_spec(config))
    targets, labelled = block.labels.apply(table)
    lies = block.train.targets.numpy()[labelled] != targets[labelled]
    assert lies.mean() > 0.05
    if block.labels.task != "regression":
        assert lies.mean() < 0.6


def _check_scores(site: Site, alone: SingleProcess) -> None:
    for k, name in enumerate(alone.names):
        path = site.path / f"{name}-state" / "scores.json"
        assert path.exists() == bool(alone.heads >> k & 1)
        if path.exists():
            manifest = json.loads((path.parent / "model" / "manifest.json").read_text())
            expected = json.loads(json.dumps({"run": manifest["run"], **alone.scores(k)}))
            assert json.loads(path.read_text()) == expected
