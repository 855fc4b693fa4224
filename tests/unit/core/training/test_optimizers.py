"""The optimisers compute what torch's compute, and leave its compiler alone."""

import copy
import subprocess
import sys

import pytest
import torch

from laser_vfl.core.training.optimizers import without_compiler

KINDS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}),
    "adam": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 1e-3}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 1e-2}),
}

FRESH = """
import sys
import torch
from laser_vfl.core.training.learner import Learner, OptimizerSettings, FederationContext
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.methods.laser import Laser

settings = TrainingSettings(representation_dim=2, batch_size=2, epochs=1, seed=0)
for name in ("sgd", "adam", "adamw"):
    model = torch.nn.Linear(3, 2)
    place = FederationContext(0, 1, 1, settings)
    learner = Learner(place, model, None, optimizer=OptimizerSettings(name), method=Laser())
    models = learner.begin_step()
    torch.autograd.backward(models.represent(torch.ones(4, 3), 0).sum())
    before = model.weight.clone()
    learner.apply_step(models, 0.0)
    assert not torch.equal(before, model.weight)
    assert model.weight.grad is None
sys.exit("torch._dynamo" in sys.modules)
"""


def trained(kind, keys, num_steps, model, state=None):
    optimizer = kind(model.parameters(), **keys)
    if state is not None:
        optimizer.load_state_dict(state)
    for step in range(num_steps):
        inputs = torch.arange(40.0).reshape(8, 5) / (step + 7)
        torch.autograd.backward(model(inputs).square().mean())
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return optimizer


@pytest.mark.parametrize("name", KINDS)
def test_it_computes_the_same_to_the_last_bit(name):
    kind, keys = KINDS[name]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))
    other = copy.deepcopy(model)
    lean = trained(without_compiler(kind), keys, 10, model)
    plain = trained(kind, keys, 10, other)
    # The state of one goes on in the other.
    trained(without_compiler(kind), keys, 10, model, plain.state_dict())
    trained(kind, keys, 10, other, lean.state_dict())
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_learner_does_not_load_the_compiler():
    assert subprocess.run([sys.executable, "-c", FRESH], check=False).returncode == 0
