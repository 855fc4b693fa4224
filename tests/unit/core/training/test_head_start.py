"""Where heads of randomised labels start: at the shares of true classes, as far as they show."""

import numpy as np
import pytest
import torch
from torch import nn

from laser_vfl.core.privacy.label_noise import DiscreteLaplace, RandomisedResponse, randomised
from laser_vfl.core.training.head_start import class_shares, start_at, started


def told(noise, shares_c, num=20_000, seed=0):
    """Noisy targets of people whose true classes have these shares."""
    true_n = np.random.default_rng(seed).choice(len(shares_c), num, p=shares_c)
    names = [str(n) for n in range(num)]
    return torch.from_numpy(randomised(noise, bytes(32 * [seed + 1]), b"here", names, true_n))


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("shares_c", [[0.9, 0.1], [0.5, 0.3, 0.15, 0.05]])
def test_the_noise_is_taken_off_what_is_counted(epsilon, shares_c):
    noise = RandomisedResponse(epsilon, len(shares_c))
    targets_n = told(noise, shares_c)
    found_c = class_shares(noise, targets_n, torch.ones(len(targets_n)))
    assert found_c.sum() == pytest.approx(1)
    assert found_c == pytest.approx(np.array(shares_c), abs=0.03)


def test_shares_that_differ_by_chance_alone_are_equal():
    noise = RandomisedResponse(0.5, 10)
    targets_n = torch.arange(200) % 10
    targets_n[:3] = 0
    found_c = class_shares(noise, targets_n, torch.ones(200))
    assert found_c == pytest.approx(np.full(10, 0.1))


def test_no_share_is_smaller_than_it_can_be_told_from_none():
    noise = RandomisedResponse(2.0, 2)
    targets_n = torch.zeros(400)
    targets_n[:10] = 1  # fewer than lies alone would make
    found_c = class_shares(noise, targets_n, torch.ones(400))
    error = (10 / 400 * 390 / 400 / 400) ** 0.5 / (noise.keep - noise.lie)
    assert found_c[1] == pytest.approx(error, rel=0.2)


def test_rows_count_by_their_weight():
    noise = RandomisedResponse(3.0, 2)
    targets_n = told(noise, [0.8, 0.2]).float()
    weights_n = torch.where(targets_n > 0, 1 / targets_n.mean(), 1 / (1 - targets_n.mean()))
    assert class_shares(noise, targets_n, weights_n) == pytest.approx([0.5, 0.5])
    unlabelled_n = torch.cat([torch.ones(len(targets_n)), torch.zeros(5000)])
    more_n = torch.cat([targets_n, torch.ones(5000)])
    assert class_shares(noise, more_n, unlabelled_n) == pytest.approx(
        class_shares(noise, targets_n, torch.ones(len(targets_n)))
    )
    assert class_shares(noise, targets_n, torch.zeros(len(targets_n))) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("head", [nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))])
def test_a_head_starts_at_the_shares(head):
    shares_c = np.array([0.7, 0.2, 0.1])
    start_at(head, shares_c)
    last = head if isinstance(head, nn.Linear) else head[-1]
    assert last.bias.detach().softmax(dim=0).numpy() == pytest.approx(shares_c, rel=1e-5)
    assert last.bias.requires_grad


def test_a_binary_head_starts_at_the_log_odds():
    head = nn.Linear(4, 1)
    start_at(head, np.array([0.9, 0.1]))
    assert torch.sigmoid(head.bias).item() == pytest.approx(0.1)


@pytest.mark.parametrize("noise", [None, DiscreteLaplace(2.0)])
def test_other_heads_are_left_alone(noise):
    def build():
        return nn.Linear(4, 1)

    assert started(build, noise, torch.zeros(3), torch.ones(3)) is build


def test_every_head_that_is_built_starts_there():
    noise = RandomisedResponse(3.0, 2)
    targets_n = told(noise, [0.9, 0.1]).float()
    build = started(lambda: nn.Linear(4, 1), noise, targets_n, torch.ones(len(targets_n)))
    first, second = build(), build()
    assert first.bias.item() == second.bias.item() < -1.5
    assert not torch.equal(first.weight, second.weight)
