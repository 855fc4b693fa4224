"""Blocks: every client has its own features, normalised with what training samples say."""

import numpy as np
import pytest

from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets import Samples
from laser_vfl.data.sets.column_cuts import column_blocks, equal_runs, spread
from laser_vfl.data.sets.dataset import stratified_test
from laser_vfl.data.sets.image_cuts import GRIDS, image_blocks, pixel_blocks, tiles
from laser_vfl.data.sets.sequence_cuts import sequence_blocks

RNG = np.random.default_rng(0)


def samples(features, *static):
    return Samples(features, np.zeros(len(features), dtype=np.int64), static)


@pytest.mark.parametrize(("features", "clients", "width"), [(561, 4, 140), (23, 4, 5), (23, 8, 2)])
def test_runs_are_equal_and_the_rest_is_left_out(features, clients, width):
    runs = equal_runs(features, clients)
    assert [run.stop - run.start for run in runs] == [width] * clients
    assert np.concatenate([np.arange(features)[run] for run in runs]).tolist() == list(
        range(width * clients)
    )


@pytest.mark.parametrize("clients", [0, 24, -1])
def test_more_blocks_than_features_are_refused(clients):
    with pytest.raises(ConfigError, match=f"cannot be cut into {clients} blocks") as caught:
        equal_runs(23, clients)
    assert caught.value.hint == "use 1 to 23 clients"


def test_few_features_are_spread_so_that_everybody_has_one():
    assert [part.tolist() for part in spread(5, 4)] == [[0, 1], [2], [3], [4]]
    assert [part.tolist() for part in spread(5, 8)] == [[k % 5] for k in range(8)]


def test_tables_are_cut_and_left_as_they_are():
    train = RNG.normal(7, 3, (200, 9)).astype(np.float32)
    test = RNG.normal(0, 1, (50, 9)).astype(np.float32)
    blocks = column_blocks(samples(train), samples(test), 4)
    assert [block.shape for block in blocks.train + blocks.test] == [(200, 2)] * 4 + [(50, 2)] * 4
    assert all(block.dtype == np.float32 for block in blocks.train)
    assert np.array_equal(np.concatenate(blocks.train, axis=1), train[:, :8])
    assert np.array_equal(np.concatenate(blocks.test, axis=1), test[:, :8])


@pytest.mark.parametrize("clients", GRIDS)
def test_tiles_are_the_whole_image_and_never_overlap(clients):
    images = np.arange(2 * 3 * 32 * 32).reshape(2, 3, 32, 32)
    found = tiles(images, clients)
    assert len(found) == clients
    pixels = np.concatenate([tile.reshape(-1) for tile in found])
    assert np.array_equal(np.sort(pixels), images.reshape(-1))


def test_four_clients_have_quadrants():
    images = np.arange(32 * 32).reshape(1, 32, 32)
    found = tiles(images, 4)
    assert [tile.shape for tile in found] == [(1, 16, 16)] * 4
    assert [int(tile[0, 0, 0]) for tile in found] == [0, 16, 512, 528]


def test_nine_tiles_are_refused():
    with pytest.raises(ConfigError, match="use 1 to 8 clients"):
        tiles(np.zeros((1, 32, 32)), 9)


def test_channels_of_images_are_normalised_over_the_whole_image():
    train = RNG.integers(0, 256, (20, 3, 32, 32)).astype(np.uint8)
    train[:, 1] //= 4
    train[:, 2] = 9  # a channel without information
    blocks = image_blocks(samples(train), samples(train[:5]), 7)
    whole = np.concatenate(blocks.train, axis=3)
    assert whole.dtype == np.float32
    assert np.abs(whole.mean(axis=(0, 2, 3))).max() < 1e-5
    assert np.allclose(whole.std(axis=(0, 2, 3)), [1, 1, 0], atol=1e-5)
    assert [block.shape[3] for block in blocks.test] == [5, 5, 5, 5, 4, 4, 4]
    assert np.array_equal(blocks.test[2], blocks.train[2][:5])


def test_pixels_are_rows_of_a_tile():
    images = RNG.normal(size=(30, 8, 8)).astype(np.float32)
    blocks = pixel_blocks(samples(images), samples(images), 6)
    assert [block.shape[1] for block in blocks.train] == [12, 12, 8, 12, 12, 8]


def test_sequences_carry_values_forward_and_say_what_was_measured():
    nan = np.nan
    one = np.array([nan, 2.0, nan, 4.0])
    other = np.array([6.0, nan, nan, nan])
    chart = np.stack([np.stack([one, other], axis=1)] * 3).astype(np.float32)
    static = np.array([[1, 10], [2, 20], [3, nan]], dtype=np.float32)
    blocks = sequence_blocks(samples(chart, static), samples(chart[:1], static[:1]), 2)
    first, second = blocks.train
    assert first.shape == second.shape == (3, 4, 3)  # value, measured, static
    assert first[0, :, 0].tolist() == pytest.approx([0, -1, -1, 1], abs=0.01)
    assert first[0, :, 1].tolist() == [0, 1, 0, 1]
    assert second[0, :, 0].tolist() == [0, 0, 0, 0]  # constant in training
    assert second[0, :, 1].tolist() == [1, 0, 0, 0]
    assert first[:, 0, 2].tolist() == pytest.approx([-1.22, 0, 1.22], abs=0.01)
    assert second[2, :, 2].tolist() == [0, 0, 0, 0]  # not known: the mean
    assert np.array_equal(blocks.test[0], first[:1])


def test_an_impossible_value_does_not_flatten_the_others():
    chart = RNG.normal(7.4, 0.1, (500, 4, 1)).astype(np.float32)
    chart[3, 2, 0] = 735.0
    never = np.full_like(chart, np.nan)
    train = samples(np.concatenate([chart, never], axis=2))
    blocks = sequence_blocks(train, train, 1)
    assert blocks.train[0][:, :, 0].std() == pytest.approx(1.0, abs=0.01)
    assert np.abs(blocks.train[0]).max() < 5
    assert not blocks.train[0][:, :, 1].any()


def test_a_stratified_split_keeps_the_share_of_each_class_and_repeats():
    labels = np.array([0] * 800 + [1] * 200)
    is_test = stratified_test(labels, 0.2)
    assert is_test[:800].sum() == 160
    assert is_test[800:].sum() == 40
    assert np.array_equal(is_test, stratified_test(labels, 0.2))
    assert not is_test[:160].all()
