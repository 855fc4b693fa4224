"""VFedTrans over gRPC equals its oracle, but for the rounding that masks leave behind.

That rounding may put a ReLU on its other side, and Adam makes whole steps of what follows. So masks
and the order of samples, which are drawn by chance otherwise, are the same in each run.
"""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_oracle_equality import Case, Client, train

from laser_vfl.core.privacy.keystream import KEY_BYTES
from tests.support.daemons.harness import Site
from tests.support.oracle.single_process import single_process

TRAINING = {"method": "vfedtrans", "batch_size": 16, "epochs": 3, "distillation_epochs": 2}
SAME_EACH_TIME: dict[str, Any] = {
    "alignment": "hmac",
    "program": "tests.support.trials.fixed_masks",
}
CASES = {
    "two clients, of whom one computes": Case(
        TRAINING, {"bank": Client(), "shop": Client()}, **SAME_EACH_TIME
    ),
    "three clients, one without labels": Case(
        {**TRAINING, "batching": "by_pattern"},
        {
            "bank": Client(num_features=12),
            "shop": Client(label=None),
            "telco": Client(label="flag", optimizer={"name": "sgd", "lr": 0.05, "momentum": 0.9}),
        },
        test_share=0.2,
        **SAME_EACH_TIME,
    ),
}


@pytest.mark.core
@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_vfedtrans_over_grpc_equals_its_oracle(case: Case, site: Site) -> None:
    for name in case.clients:
        state = site.path / f"{name}-state"
        state.mkdir(mode=0o700)
        (state / "own.key").write_bytes(name.encode().ljust(KEY_BYTES))
        (state / "own.key").chmod(0o600)
    train(case, site)
    alone = single_process(site.path)
    untrained = {
        name: {key: value.clone() for key, value in tensors.items()}
        for name, tensors in alone.parameters().items()
    }
    alone.oracle.run()
    for k, (name, expected) in enumerate(alone.parameters().items()):
        found = load_file(site.path / f"{name}-state" / "model" / "model.safetensors")
        assert found.keys() == expected.keys(), "a model has nothing of the stages before it"
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-4)
        has_learnt = {key for key in expected if not expected[key].equal(untrained[name][key])}
        assert any("encoder" in key for key in has_learnt) == (case.clients[name].label is not None)
        components = alone.learners[k].scratch
        assert components is not None
        assert all(float(rows.abs().sum()) > 0 for rows in components.components.values())
    if case.test_share:
        scores = json.loads((site.path / "bank-state" / "scores.json").read_text())
        expected_scores = alone.scores(0)
        assert scores["overall"] == pytest.approx(expected_scores["overall"], abs=0.05)
        assert scores["by_subset"].keys() == {"bank"}
