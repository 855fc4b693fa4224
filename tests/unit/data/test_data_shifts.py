"""Whole images are moved and mirrored before they are cut, in another way in each epoch."""

import numpy as np

from laser_vfl.data.sets.dataset import DataSet, Samples
from laser_vfl.data.sets.image_cuts import image_blocks, shifted_blocks


def images(num: int) -> DataSet:
    pixels = np.random.default_rng(1).integers(1, 256, size=(num, 3, 8, 8), dtype=np.uint8)
    samples = Samples(pixels, np.zeros(num, dtype=np.int64))
    return DataSet("made up", "multiclass", "accuracy", 2, samples, samples, (), image_blocks)


def whole(blocks: list[np.ndarray]) -> np.ndarray:
    top, bottom = (np.concatenate(blocks[i : i + 2], axis=-1) for i in (0, 2))
    return np.concatenate([top, bottom], axis=-2)


def test_every_image_is_moved_as_a_whole():
    data = images(60)
    plain = whole(data.blocks(4).train)
    moved = whole(shifted_blocks(data, 4, 2, seed=0, epoch=1))
    assert moved.shape == plain.shape
    seen = set()
    for image, shifted in zip(plain, moved, strict=True):
        black = shifted.min(axis=(1, 2), keepdims=True)
        found = [
            (down, right, mirror)
            for down in range(-2, 3)
            for right in range(-2, 3)
            for mirror in (False, True)
            if matches(image, shifted[..., ::-1] if mirror else shifted, down, right)
        ]
        assert len(found) == 1, black
        seen.add(found[0])
    assert len(seen) > 25


def matches(image: np.ndarray, shifted: np.ndarray, down: int, right: int) -> bool:
    rows = slice(max(0, -down), 8 - max(0, down))
    columns = slice(max(0, -right), 8 - max(0, right))
    there = np.roll(image, (-down, -right), axis=(1, 2))
    return bool(np.array_equal(shifted[:, rows, columns], there[:, rows, columns]))


def test_each_epoch_and_seed_moves_them_otherwise():
    data = images(20)
    found = {
        (seed, epoch): whole(shifted_blocks(data, 4, 2, seed=seed, epoch=epoch)).tobytes()
        for seed, epoch in [(0, 1), (0, 2), (1, 1)]
    }
    assert len(set(found.values())) == 3
    again = whole(shifted_blocks(data, 4, 2, seed=0, epoch=1)).tobytes()
    assert again == found[0, 1]


def test_fewer_samples_are_drawn_from_all_of_them():
    """Files may be ordered by class, so the first ones will not do."""
    labels = np.repeat(np.arange(10), 100)
    samples = Samples(np.arange(1000, dtype=np.uint8)[:, None], labels)
    data = DataSet("made up", "multiclass", "accuracy", 10, samples, samples, (), image_blocks)
    fewer = data.reduced(300, None)
    assert len(fewer.train) == 300
    assert len(fewer.test) == 1000
    assert np.bincount(fewer.train.labels).min() > 10
    assert np.array_equal(fewer.train.labels, data.reduced(300, 5000).train.labels)
