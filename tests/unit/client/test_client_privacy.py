"""What noise is worth, who has to have the means to say so, and what a model lets out."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import nn

from laser_vfl.client import privacy_budget
from laser_vfl.client.block import release_of
from laser_vfl.client.config import PrivacyConfig
from laser_vfl.client.privacy_budget import budget, check_accountant, epsilon
from laser_vfl.client.published import PublishedModel
from laser_vfl.core.errors import ConfigError


def exact_epsilon(noise, num_releases, delta):
    """The ε of a Gaussian mechanism, whose compositions are Gaussian mechanisms again."""
    mu = 2 / noise * math.sqrt(num_releases)

    def excess(epsilon):
        tail = epsilon + norm.logcdf(-mu / 2 - epsilon / mu)
        return norm.cdf(mu / 2 - epsilon / mu) - np.exp(tail) - delta

    return brentq(excess, 0, mu * mu + 20 * mu + 10)


@pytest.mark.parametrize("noise", [0.5, 2.0, 10.0, 40.0])
@pytest.mark.parametrize("num_releases", [1, 21])
@pytest.mark.parametrize("delta", [1e-5, 1e-8])
def test_epsilon_is_a_little_above_the_best_possible(noise, num_releases, delta):
    best = exact_epsilon(noise, num_releases, delta)
    assert best <= epsilon(noise, num_releases, delta) <= 1.15 * best


def test_a_budget_says_what_a_manifest_has_to_say():
    assert budget(PrivacyConfig(), 20) is None
    assert budget(PrivacyConfig(clip=2.0), 20) == {"clip": 2.0, "noise": 0.0}
    made = budget(PrivacyConfig(clip=2.0, noise=8.0, delta=1e-6), 20)
    assert made == {
        "clip": 2.0,
        "noise": 8.0,
        "delta": 1e-6,
        "num_releases": 21,
        "epsilon_per_release": epsilon(8.0, 1, 1e-6),
        "epsilon": epsilon(8.0, 21, 1e-6),
    }
    assert made["epsilon_per_release"] < made["epsilon"]


def test_noise_without_an_accountant_is_refused(monkeypatch):
    monkeypatch.setattr(privacy_budget, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"a.yaml:3: .*install laser-vfl\[privacy\]"):
        check_accountant(
            SimpleNamespace(
                privacy=PrivacyConfig(clip=1.0, noise=1.0), where=lambda key: "a.yaml:3"
            )
        )
    check_accountant(SimpleNamespace(privacy=PrivacyConfig(clip=1.0)))
    with pytest.raises(ConfigError):
        epsilon(1.0, 1, 1e-5)


def model_of(sha256="abc", noise=0.5):
    torch.manual_seed(0)
    fields = dict.fromkeys(PublishedModel.__dataclass_fields__)
    return PublishedModel(
        **fields
        | {
            "models": nn.ModuleDict({"representation": nn.Linear(3, 4)}),
            "device": torch.device("cpu"),
            "precision": "float32",
            "sha256": sha256,
            "release": release_of(0.5, noise, bytes(32)),
        }
    )


INPUTS = torch.arange(12.0).reshape(4, 3)
DIGESTS = np.arange(4 * 32, dtype=np.uint8).reshape(4, 32)


def let_out(model, digests=DIGESTS, inputs=INPUTS):
    return model.released(model.represent(inputs), digests, inputs)


def test_a_served_model_clips_for_all_and_adds_noise_for_peers():
    model = model_of()
    own = model.represent(INPUTS)
    assert own.norm(dim=1).max() <= 0.5 + 1e-6
    assert (let_out(model) != own).all()
    assert torch.equal(let_out(model_of(noise=0.0)), own)


def test_asking_again_tells_nothing_new():
    whole = let_out(model_of())
    for place in range(4):
        alone = let_out(model_of(), DIGESTS[place : place + 1], INPUTS[place : place + 1])
        assert torch.allclose(alone[0], whole[place], atol=1e-6)


def test_another_person_model_or_row_has_other_noise():
    def noise(model, digests, inputs):
        return (let_out(model, digests, inputs) - model.represent(inputs))[0]

    one = noise(model_of(), DIGESTS[:1], INPUTS[:1])
    for other in (
        noise(model_of(), DIGESTS[1:2], INPUTS[:1]),
        noise(model_of(), DIGESTS[:1], INPUTS[1:2]),
        noise(model_of("def"), DIGESTS[:1], INPUTS[:1]),
    ):
        assert (one - other).abs().min() > 1e-4
