"""Noise on representations: bounded rows, and noise that is stable, secret and normal."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from laser_vfl.core.privacy.noise import Phase, Release, gaussian, gaussian_rows
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.training.learner import FederationContext, Learner, OptimizerSettings
from laser_vfl.methods.laser import Laser
from tests.support.oracle.core_federation import World, settings_of

KEY = bytes(range(32))
ROWS = torch.linspace(-1, 1, 24).reshape(6, 4)


def noise_of(rows, phase=Phase.TRAINING, step=3, secret=KEY):
    return Release(1.0, 0.5, secret).batch(rows, phase, step) - rows


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 100.0), st.integers(0, 2**32))
def test_rows_are_no_longer_than_the_bound_and_short_ones_are_left_alone(clip, seed):
    rows = torch.randn(20, 5, generator=torch.Generator().manual_seed(seed)) * clip
    got = Release(clip).clipped(rows)
    before, after = rows.norm(dim=1), got.norm(dim=1)
    assert (after <= clip * (1 + 1e-5)).all()
    short = before <= clip
    assert torch.equal(got[short], rows[short])
    cosine = functional.cosine_similarity(got, rows)
    assert torch.allclose(cosine, torch.ones(20), atol=1e-5)


def test_the_gradient_of_clipping_is_the_derivative():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(Release(1.0).clipped, rows[:2].clone().requires_grad_())
    rows.requires_grad_()
    Release(1.0).clipped(rows).sum().backward()
    assert torch.equal(rows.grad[2], torch.ones(2, dtype=torch.float64))


def test_noise_is_standard_normal():
    values = gaussian(KEY, (1000, 101)).ravel().astype(np.float64)
    num = len(values)
    assert abs(values.mean()) < 5 / np.sqrt(num)
    assert abs(values.var() - 1) < 5 * np.sqrt(2 / num)
    assert abs((values**3).mean()) < 5 * np.sqrt(15 / num)
    assert abs((values**4).mean() - 3) < 5 * np.sqrt(96 / num)
    for bound, share in ((1, 0.6827), (2, 0.9545), (3, 0.9973)):
        found = (np.abs(values) < bound).mean()
        assert abs(found - share) < 5 * np.sqrt(share * (1 - share) / num)
    pairs = values[: num // 2], values[num // 2 : 2 * (num // 2)]
    assert abs(np.corrcoef(*pairs)[0, 1]) < 5 / np.sqrt(num / 2)


def test_its_scale_is_noise_times_clip():
    rows = torch.zeros(500, 100)
    noise = Release(3.0, 0.5, KEY).batch(rows, Phase.TRAINING, 0)
    assert noise.std().item() == pytest.approx(1.5, rel=0.02)


def test_the_same_again_has_the_same_noise_and_anything_else_has_not():
    other = ROWS.clone()
    other[5, 3] += 1e-6
    found = [
        noise_of(ROWS),
        noise_of(ROWS, step=4),
        noise_of(ROWS, phase=Phase.EVALUATION),
        noise_of(ROWS, secret=KEY[::-1]),
        noise_of(other),
        noise_of(ROWS[:5]),
        noise_of(ROWS.reshape(4, 6)),
    ]
    assert torch.equal(found[0], noise_of(ROWS.clone()))
    for one, another in combinations(found, 2):
        num = min(one.numel(), another.numel())
        assert (one.flatten()[:num] != another.flatten()[:num]).all()


def test_people_with_equal_features_do_not_look_alike():
    alike = torch.ones(2, 4)
    assert (noise_of(alike)[0] != noise_of(alike)[1]).all()


def test_who_is_asked_about_twice_has_the_same_noise_whoever_else_is_asked_about():
    release = Release(1.0, 0.5, KEY)
    names = [b"ada", b"bob", b"cyd"]
    rows = torch.zeros(3, 5)
    together = release.people(rows, names)
    for place, name in enumerate(names):
        alone = release.people(rows[:1] + 1e-7, [name])
        assert torch.allclose(alone[0], together[place], atol=1e-6)
    assert (together[0] != together[1]).all()


@pytest.mark.parametrize("width", [1, 2, 7, 300_000])
def test_a_row_of_noise_does_not_depend_on_how_many_are_drawn(width):
    keys = [bytes([k]) * 32 for k in range(3)]
    assert (gaussian_rows(keys, width)[1] == gaussian(keys[1], (width,))).all()


def test_noise_needs_a_secret():
    with pytest.raises(ValueError, match="secret"):
        Release(1.0, 0.5)
    rows = torch.ones(2, 2)
    assert Release(1.0).batch(rows, Phase.TRAINING, 0) is rows
    assert Release(1.0).people(rows, [b"a", b"b"]) is rows


def _member(world, client, release, settings):
    plain = world.member(client, settings)
    models = plain.learner.models
    learner = Learner(
        FederationContext(client, world.num_clients, 0b11, settings),
        models["representation"],
        models["fusion"],
        optimizer=OptimizerSettings(name="sgd", lr=0.5),
        release=release,
        method=Laser(),
    )
    return Member(learner, plain.alignment, plain.inputs, plain.targets, plain.label_weights)


def test_the_own_head_sees_no_noise_and_the_others_do():
    """A sample's loss at a head changes with the noise of the others' blocks and of no more."""
    settings = settings_of()
    world = World([{0, 1}] * 4, 2, {0, 1})

    def losses(noise):
        members = {
            0: _member(world, 0, Release(0.5, noise, KEY), settings),
            1: _member(world, 1, None, settings),
        }
        return Oracle(members, settings).step(0, 0b11)

    quiet, noisy = losses(0.0), losses(3.0)
    assert quiet[0] == noisy[0]
    assert quiet[1] != noisy[1]
