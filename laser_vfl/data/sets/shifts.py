"""The paper's augmentation of whole images, before they are cut: it moves pixels between blocks.

So no federation can do it; it belongs to the simulation of the paper's tables.
"""

import numpy as np

from laser_vfl.core.randomness import Purpose, random_words
from laser_vfl.data.sets.dataset import DataSet, Floats, Samples


def shifted_blocks(
    dataset: DataSet, num_clients: int, padding: int, *, seed: int, epoch: int
) -> list[Floats]:
    """Return the training blocks of an epoch: images moved and mirrored by chance, then cut."""
    images = dataset.train.features
    num_train = len(images)
    height, width = images.shape[-2:]
    words = random_words(3 * num_train, seed=seed, purpose=Purpose.SHIFTS, moment=epoch)
    down, right, mirror = words.reshape(3, num_train) >> np.uint64(16)
    span = np.uint64(2 * padding + 1)
    rows_nh = (down % span).astype(np.intp)[:, None] + np.arange(height)
    columns_nw = (right % span).astype(np.intp)[:, None] + np.arange(width)
    is_mirrored = (mirror & np.uint64(1)).astype(bool)
    columns_nw[is_mirrored] = columns_nw[is_mirrored, ::-1]
    edges = [(0, 0)] * (images.ndim - 2) + [(padding, padding)] * 2
    padded = np.pad(images, edges)
    which_n = np.arange(num_train)[:, None, None]
    moved_nhwc = padded[which_n, :, rows_nh[:, :, None], columns_nw[:, None, :]]
    moved = np.ascontiguousarray(np.moveaxis(moved_nhwc, -1, 1))
    samples = Samples(moved, dataset.train.labels)
    # Cut as test samples are, so that they are normalised by the images as they were.
    return dataset.cut(dataset.train, samples, num_clients).test
