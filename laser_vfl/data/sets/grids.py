"""Images cut along a grid, one tile for each client: quadrants for four."""

from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.data.sets.dataset import Blocks, Floats, Samples
from laser_vfl.data.sets.runs import check_num_clients
from laser_vfl.data.standard import Standard

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
        standard = Standard.fit(train_tile, axis=1)
        blocks.train.append(standard.apply(train_tile))
        blocks.test.append(standard.apply(test_tile))
    return blocks
