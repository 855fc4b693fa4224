"""Images cut along a grid, one tile for each client, and shifted before the cut if wanted."""

from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.randomness import RandomStream, random_words
from laser_vfl.data.sets.column_cuts import check_num_clients
from laser_vfl.data.sets.dataset import Blocks, DataSet, Floats, Samples
from laser_vfl.data.standardisation import Standardisation

GRIDS = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (1, 5), 6: (2, 3), 7: (1, 7), 8: (2, 4)}
"""Rows and columns of tiles by the number of clients."""


def tiles(images: npt.NDArray[Any], num_clients: int) -> list[npt.NDArray[Any]]:
    """Cut images (n, ..., height, width); tiles differ in size where the grid does not fit."""
    check_num_clients(num_clients, max(GRIDS))
    num_rows, num_columns = GRIDS[num_clients]
    return [
        tile
        for strip in np.array_split(images, num_rows, axis=-2)
        for tile in np.array_split(strip, num_columns, axis=-1)
    ]


def flat_tiles(images: npt.NDArray[Any], num_clients: int) -> list[npt.NDArray[Any]]:
    """Cut images and lay each tile out as a row of pixels."""
    return [tile.reshape(len(images), -1) for tile in tiles(images, num_clients)]


def image_blocks(train: Samples, test: Samples, num_clients: int) -> Blocks:
    """Cut images (n, channels, height, width) of bytes, each channel normalised."""
    normalised_cv = _normalised_bytes(train.features)
    return Blocks(
        [_looked_up(normalised_cv, tile) for tile in tiles(train.features, num_clients)],
        [_looked_up(normalised_cv, tile) for tile in tiles(test.features, num_clients)],
    )


def _normalised_bytes(images: npt.NDArray[np.uint8]) -> Floats:
    """Return what each byte of each channel becomes: counting 256 values is quick and exact."""
    values = np.arange(256)
    rows = []
    for channel in np.moveaxis(images, 1, 0):
        counts = np.bincount(channel.reshape(-1), minlength=256)
        mean = np.average(values, weights=counts)
        deviation = np.sqrt(np.average((values - mean) ** 2, weights=counts))
        rows.append((values - mean) / (deviation or 1.0))
    return np.stack(rows).astype(np.float32)


def _looked_up(normalised_cv: Floats, tile: npt.NDArray[np.uint8]) -> Floats:
    out = np.empty(tile.shape, dtype=np.float32)
    for channel, normalised_v in enumerate(normalised_cv):
        out[:, channel] = normalised_v[tile[:, channel]]
    return out


def pixel_blocks(train: Samples, test: Samples, num_clients: int) -> Blocks:
    """Cut images (n, height, width) into rows of pixels, each pixel standardised."""
    pairs = zip(
        flat_tiles(train.features, num_clients),
        flat_tiles(test.features, num_clients),
        strict=True,
    )
    blocks = Blocks([], [])
    for train_tile, test_tile in pairs:
        standard = Standardisation.fit(train_tile, axis=1)
        blocks.train.append(standard.apply(train_tile))
        blocks.test.append(standard.apply(test_tile))
    return blocks


def shifted_blocks(
    dataset: DataSet, num_clients: int, padding: int, *, seed: int, epoch: int
) -> list[Floats]:
    """Return the training blocks of an epoch: images moved and mirrored by chance, then cut.

    This is the paper's augmentation. It moves pixels between blocks, so no federation can do it; it
    is for the simulation of the paper's tables.
    """
    images = dataset.train.features
    num_train = len(images)
    height, width = images.shape[-2:]
    words = random_words(3 * num_train, seed=seed, stream=RandomStream.SHIFTS, counter=epoch)
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
