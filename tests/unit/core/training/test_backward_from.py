"""Going backward from a tensor whose gradient is known."""

import copy
import subprocess
import sys

import pytest
import torch

from laser_vfl.core.training.gradients import backward_from

FRESH = """
import sys
import torch
from laser_vfl.core.training.gradients import backward_from

model = torch.nn.Linear(3, 2)
backward_from(model(torch.ones(4, 3)), torch.ones(4, 2))
assert model.weight.grad is not None
sys.exit("sympy" in sys.modules)
"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_computes_the_same_to_the_last_bit(dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Tanh(), torch.nn.Linear(7, 3)
    ).to(dtype)
    other = copy.deepcopy(model)
    inputs, gradient = torch.randn(8, 5).to(dtype), torch.randn(8, 3)
    gradient[0, 0], gradient[1, 1] = 0.0, -0.0
    backward_from(model(inputs), gradient)
    torch.autograd.backward(other(inputs), gradient)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert mine.grad is not None
        assert torch.equal(mine.grad, theirs.grad)


def test_gradients_of_another_shape_are_refused():
    model = torch.nn.Linear(3, 2)
    with pytest.raises(RuntimeError):
        backward_from(model(torch.ones(4, 3)), torch.ones(4, 3))


def test_it_does_not_load_sympy():
    assert subprocess.run([sys.executable, "-c", FRESH], check=False).returncode == 0
