"""What noise is worth, who has to have the means to say so, and what a model lets out."""

import asyncio
import math
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import nn

from laser_vfl.client import privacy_budget
from laser_vfl.client.config import ClientConfig, ModelConfig, PrivacyConfig
from laser_vfl.client.daemon import ClientDaemon
from laser_vfl.client.model_building import build_models, check_noise, release_of
from laser_vfl.client.own_models import NO_MODELS, OwnModels
from laser_vfl.client.privacy_budget import budget, check_accountant, epsilon
from laser_vfl.client.serving.models.published_model import PublishedModel
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ConfigError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.table_form import TableForm
from laser_vfl.methods.training_settings import TrainingSettings


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


def test_noise_next_to_nothing_promises_nothing():
    assert epsilon(1e-320, 1, 1e-5) == math.inf


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


ROWS_ENCODING = SimpleNamespace(input_shape=(3,), form=TableForm.of_numbers(3))
IMAGES = SimpleNamespace(encoding=SimpleNamespace(input_shape=(1, 4, 4), form=None), labels=None)
ROWS = SimpleNamespace(encoding=ROWS_ENCODING, labels=None)
SETTINGS = TrainingSettings(representation_dim=8, batch_size=4, epochs=1)
CONTEXT = FederationContext(0, 1, 0, SETTINGS)


def config_of(representation="mlp", noise=2.0, width=None):
    return SimpleNamespace(
        privacy=PrivacyConfig(clip=1.0, noise=noise),
        model=ModelConfig(
            representation=representation,
            representation_options={"width": 4} if representation == "resnet18" else {},
        ),
        representation_dim=width,
        where=lambda key: f"a.yaml: {key}",
    )


def with_batch_norm(*, input_shape, representation_dim):
    """A factory of somebody's own; it knows no width but the federation's."""
    assert representation_dim == 8
    norm = nn.Sequential(nn.BatchNorm1d(representation_dim))
    return nn.Sequential(nn.Linear(*input_shape, representation_dim), norm)


@pytest.fixture
def own(monkeypatch):
    module = ModuleType("own_noisy_models")
    module.with_batch_norm = with_batch_norm
    monkeypatch.setitem(sys.modules, "own_noisy_models", module)


OWN = "own_noisy_models:with_batch_norm"
GIVEN = OwnModels(representation=with_batch_norm(input_shape=(3,), representation_dim=8))
REFUSED = r"a.yaml: privacy.noise: the representation model has batch norm .*; remove noise, or"


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("config", "block", "given"),
    [
        (config_of("resnet18"), IMAGES, NO_MODELS),
        (config_of(OWN, width=8), ROWS, NO_MODELS),
        (config_of(), ROWS, GIVEN),
    ],
    ids=["resnet18", "own in YAML", "own in Python"],
)
def test_noise_on_rows_that_batch_norm_mixes_is_refused(config, block, given):
    with pytest.raises(ConfigError, match=REFUSED):
        check_noise(config, block, given)
    with pytest.raises(ConfigError, match=REFUSED):
        build_models(config, block, CONTEXT, given)
    config.privacy = PrivacyConfig(clip=1.0)
    check_noise(config, block, given)
    build_models(config, block, CONTEXT, given)


@pytest.mark.usefixtures("own")
def test_an_own_factory_that_needs_the_width_is_refused_when_the_width_is_known():
    check_noise(config_of(OWN), ROWS)
    with pytest.raises(ConfigError, match=REFUSED):
        build_models(config_of(OWN), ROWS, CONTEXT)


def test_noise_on_rows_that_stay_apart_is_taken():
    check_noise(config_of(), ROWS)
    normed = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GroupNorm(2, 8))
    build_models(config_of(), ROWS, CONTEXT, OwnModels(representation=normed))


def test_a_client_whose_noise_batch_norm_spoils_does_not_start(tmp_path):
    (tmp_path / "bank.csv").write_text("id,a,b,c\n1,2,3,4\n2,3,4,6\n")
    (tmp_path / "bank.yaml").write_text(
        "{federation: churn, name: bank, listen: '127.0.0.1:0', coordinator: '127.0.0.1:1',"
        " state: state, data: {train: bank.csv, id: id}, privacy: {clip: 1.0, noise: 2.0}}"
    )
    config = load_config(tmp_path / "bank.yaml", ClientConfig)

    async def start():
        async with ClientDaemon(config, insecure=True, own=GIVEN):
            pytest.fail("it has started")

    with pytest.raises(ConfigError, match=r"bank\.yaml:1:\d+: privacy.noise: .*batch norm"):
        asyncio.run(start())


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
            "me": 0,
            "roster": ("bank",),
            "heads": (),
            "settings": SETTINGS,
            "encoding": ROWS_ENCODING,
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
