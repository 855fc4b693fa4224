"""Images are moved and mirrored while a model trains, and never when it predicts."""

import pytest
import torch

from laser_vfl.core.errors import ConfigError
from laser_vfl.models import build_representation
from laser_vfl.models.builtin_models import RandomShift


def test_images_are_moved_and_mirrored_by_chance_while_training():
    torch.manual_seed(3)
    image = torch.arange(1.0, 37.0).reshape(1, 1, 6, 6)
    shift = RandomShift(1)
    seen = set()
    for row in shift(image.repeat(400, 1, 1, 1)):
        inner = row[0]
        mirrored = bool(inner[2, 2] > inner[2, 3])
        plain = inner.flip(1) if mirrored else inner
        # The value in the middle tells by how much the image was moved.
        down, right = divmod(int(plain[2, 2]) - 1, 6)
        expected = torch.nn.functional.pad(image[0, 0], [1] * 4)[down - 1 :, right - 1 :][:6, :6]
        assert torch.equal(plain, expected)
        seen.add((down - 2, right - 2, mirrored))
    assert len(seen) == 3 * 3 * 2


def test_nothing_is_moved_when_predicting():
    shift = RandomShift(2).eval()
    images = torch.randn(3, 2, 5, 5)
    assert shift(images) is images


def test_the_same_randomness_moves_images_alike():
    images = torch.randn(8, 3, 4, 7)
    shift = RandomShift(2)
    moved = []
    for _ in range(2):
        torch.manual_seed(5)
        moved.append(shift(images))
    assert torch.equal(*moved)


def test_it_is_an_option_of_resnet18():
    options = {"width": 4, "augment": 1}
    keys = {"input_shape": (3, 8, 8), "representation_dim": 5, "hidden": []}
    model = build_representation("resnet18", **keys, options=options)
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 5)
    with pytest.raises(ConfigError, match="augment"):
        build_representation("resnet18", **keys, options={"augment": -1})
