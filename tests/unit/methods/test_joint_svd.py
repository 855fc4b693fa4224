"""The joint components of two blocks, from masked matrices, equal those of the plain blocks."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.methods.vfedtrans.joint_svd import (
    Chunk,
    chunks_of,
    directions,
    joint_directions,
    masked,
    orthogonal,
    shared_rows,
    unmasked,
    with_fixed_signs,
)

KEYS = {0: bytes([1]) * 32, 1: bytes([2]) * 32}
PAIR_KEY = bytes([9]) * 32
WIDTH = 6


def blocks(num_rows: int, *widths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    common = rng.normal(size=(num_rows, 3))
    return [
        (common @ rng.normal(size=(3, width)) + 0.3 * rng.normal(size=(num_rows, width))).astype(
            np.float32
        )
        for width in widths
    ]


def through_masks(parties: list[np.ndarray], size: int, keys=KEYS, pair_key=PAIR_KEY):
    """Return the components as both parties get them, and what the third client has seen."""
    reduced = [block.astype(np.float64) @ directions(block, WIDTH) for block in parties]
    chunks = list(chunks_of([Group(0b111, len(parties[0]))], 3, size))
    chunks = [chunk for chunk in chunks if chunk.parties == (0, 1)]
    up, down = chunks[: len(chunks) // 2], chunks[len(chunks) // 2 :]
    seen = np.concatenate(
        [
            np.hstack([masked(reduced[k][c.start : c.stop], c, pair_key, keys[k]) for k in (0, 1)])
            for c in up
        ]
    )
    turn = joint_directions(seen)
    back = [unmasked((seen[c.start : c.stop] @ turn).astype(np.float32), c, pair_key) for c in down]
    return with_fixed_signs(np.concatenate(back).astype(np.float32)), seen


@pytest.mark.parametrize("size", [1, 7, 16, 100])
def test_the_components_are_those_of_the_plain_blocks(size):
    parties = blocks(40, 4, 5)
    found, _ = through_masks(parties, size)
    u, s, _ = np.linalg.svd(np.hstack(parties).astype(np.float64), full_matrices=False)
    expected = with_fixed_signs((u * s)[:, :WIDTH].astype(np.float32))
    assert_allclose(found, expected, atol=2e-5)


def test_keys_make_no_difference_to_the_components_and_all_to_what_is_seen():
    parties = blocks(40, 4, 5)
    found, seen = through_masks(parties, 16)
    again, other = through_masks(parties, 16, {0: bytes([5]) * 32, 1: bytes([6]) * 32}, bytes(32))
    assert_allclose(found, again, atol=2e-5)
    assert np.abs(seen - other).max() > 1
    plain = np.hstack([np.pad(block, ((0, 0), (0, WIDTH - block.shape[1]))) for block in parties])
    correlation = np.corrcoef(seen.ravel(), plain.ravel())[0, 1]
    assert abs(correlation) < 0.2


def test_a_wide_block_is_brought_down_to_its_principal_directions():
    (block,) = blocks(200, 30)
    turn = directions(block, WIDTH)
    assert turn.shape == (30, WIDTH)
    assert_allclose(turn.T @ turn, np.eye(WIDTH), atol=1e-10)
    kept = np.linalg.norm(block.astype(np.float64) @ turn) ** 2
    best = np.linalg.svd(block.astype(np.float64), compute_uv=False)[:WIDTH] ** 2
    assert kept == pytest.approx(best.sum(), rel=1e-6)


def test_masks_are_orthogonal_and_differ():
    first, second = orthogonal(bytes(32), 20), orthogonal(bytes([1]) * 32, 20)
    assert_allclose(first @ first.T, np.eye(20), atol=1e-12)
    assert np.abs(first - second).max() > 0.1


def test_every_pair_has_its_chunks_and_a_third_client_computes():
    groups = [Group(0b011, 5), Group(0b111, 4), Group(0b100, 9)]
    chunks = list(chunks_of(groups, 3, 4))
    of_first = [chunk for chunk in chunks if chunk.parties == (0, 1)]
    assert [(c.start, c.stop, c.upward) for c in of_first] == [
        (0, 4, True),
        (4, 8, True),
        (8, 9, True),
        (0, 4, False),
        (4, 8, False),
        (8, 9, False),
    ]
    assert [c.is_last for c in of_first[:3]] == [False, False, True]
    assert {chunk.parties: chunk.computer for chunk in chunks} == {(0, 1): 2, (0, 2): 1, (1, 2): 0}
    assert Chunk((0, 1), 0, 0, 1, 1, True).clients == 0b11
    assert {c.computer for c in chunks_of([Group(0b11, 3)], 2, 4)} == {0}


def test_both_parties_walk_through_the_shared_samples_in_the_same_order():
    groups = (Group(0b01, 1), Group(0b11, 2), Group(0b111, 2))
    first = ClientAlignment(groups, {0: np.array([7]), 1: np.array([3, 1]), 2: np.array([0, 9])})
    assert shared_rows(first, 1).tolist() == [3, 1, 0, 9]
    assert shared_rows(first, 2).tolist() == [0, 9]
    assert shared_rows(first, 5).tolist() == []
