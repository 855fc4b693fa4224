"""Losses on randomised labels: what the noise makes of a prediction, and no more of it."""

import numpy as np
import pytest
import torch

from laser_vfl.core.privacy.label_noise import BOUNDS_APART, DiscreteLaplace, RandomisedResponse
from laser_vfl.core.training.fusion import sample_losses


def transition(noise):
    matrix = np.full((noise.num_levels, noise.num_levels), noise.lie)
    np.fill_diagonal(matrix, noise.keep)
    return torch.from_numpy(matrix)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0])
@pytest.mark.parametrize("num_classes", [2, 3, 12])
def test_the_loss_is_that_of_the_prediction_through_the_noise(num_classes, epsilon):
    noise = RandomisedResponse(epsilon, num_classes)
    outputs_no = 3 * drawn(50, num_classes)
    targets_n = torch.arange(50) % num_classes
    expected_n = -(outputs_no.softmax(dim=1) @ transition(noise)).log()[range(50), targets_n]
    found_n = sample_losses("multiclass", outputs_no, targets_n, noise)
    assert torch.allclose(found_n, expected_n)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0])
def test_a_binary_head_is_one_of_two_classes(epsilon):
    noise = RandomisedResponse(epsilon, 2)
    log_odds_n1 = 3 * drawn(50, 1)
    targets_n = torch.arange(50) % 2
    two_no = torch.cat([torch.zeros(50, 1), log_odds_n1], dim=1)
    found_n = sample_losses("binary", log_odds_n1, targets_n.double(), noise)
    assert torch.allclose(found_n, sample_losses("multiclass", two_no, targets_n, noise))


@pytest.mark.parametrize("size", [30.0, 1e4, 1e30])
def test_it_is_finite_whatever_the_outputs(size):
    noise = RandomisedResponse(20.0, 3)
    outputs_no = (size * torch.eye(3)).requires_grad_()
    losses_n = sample_losses("multiclass", outputs_no, torch.tensor([0, 1, 0]), noise)
    both_n1 = torch.tensor([[size], [-size]], requires_grad=True)
    flags_n = sample_losses("binary", both_n1, torch.tensor([0.0, 0.0]), noise)
    (losses_n.sum() + flags_n.sum()).backward()
    for value in (losses_n, flags_n, outputs_no.grad, both_n1.grad):
        assert value.isfinite().all()
    assert losses_n.max() <= -np.log(noise.lie) + 1e-3, "a label that is a lie costs so much"


def test_gradients_are_those_of_the_loss():
    targets_n = torch.tensor([0, 1, 2, 1])
    noise = RandomisedResponse(1.5, 3)
    outputs_no = drawn(4, 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: sample_losses("multiclass", z, targets_n, noise), outputs_no
    )
    flags_n = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64)
    pair = RandomisedResponse(1.5, 2)
    log_odds_n1 = drawn(4, 1).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: sample_losses("binary", z, flags_n, pair), log_odds_n1
    )


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_the_best_prediction_is_the_true_distribution(epsilon):
    noise = RandomisedResponse(epsilon, 3)
    true_o = torch.tensor([0.7, 0.25, 0.05], dtype=torch.float64)
    told_o = true_o @ transition(noise)
    logits_o = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([logits_o], max_iter=500, tolerance_grad=1e-12)

    def loss():
        optimiser.zero_grad()
        losses_n = sample_losses("multiclass", logits_o.expand(3, 3), torch.arange(3), noise)
        total = (losses_n * told_o).sum()
        total.backward()
        return total

    for _ in range(5):
        optimiser.step(loss)
    assert torch.allclose(logits_o.softmax(dim=0), true_o, atol=1e-4)


def test_amounts_have_the_curvature_of_a_squared_error():
    """The mean loss over Laplace noise, near the true amount."""
    noise = DiscreteLaplace(2.0)
    scale = BOUNDS_APART / noise.epsilon
    quantiles_n = (torch.arange(200_001, dtype=torch.float64) + 0.5) / 200_001 - 0.5
    told_n = -scale * quantiles_n.sign() * (1 - 2 * quantiles_n.abs()).log()
    means = []
    for error in (0.0, 0.1):
        outputs_n1 = torch.full((len(told_n), 1), error, dtype=torch.float64)
        means.append(float(sample_losses("regression", outputs_n1, told_n, noise).mean()))
    assert means[1] - means[0] == pytest.approx(0.1**2, rel=0.05)


def test_a_clipped_amount_pulls_like_one_that_is_not():
    noise = DiscreteLaplace(1.0)
    half = BOUNDS_APART / 2
    outputs_n1 = torch.tensor([[0.3], [0.3]], requires_grad=True)
    sample_losses("regression", outputs_n1, torch.tensor([half, 40.0]), noise).sum().backward()
    assert outputs_n1.grad[0] == outputs_n1.grad[1] < 0
