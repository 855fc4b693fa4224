"""Digests are found among many, also those that begin like others."""

import numpy as np

from laser_vfl.client.tables.digest_index import DigestIndex
from laser_vfl.core.alignment import DIGEST_BYTES


def digest(*parts):
    """A digest of a first half and a second one."""
    return b"".join(part.to_bytes(DIGEST_BYTES // 2, "big") for part in parts)


def rows(digests):
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)


def test_each_digest_is_found_where_it_stands():
    held = np.random.default_rng(0).integers(0, 256, (1000, DIGEST_BYTES), np.uint8)
    others = np.random.default_rng(1).integers(0, 256, (1000, DIGEST_BYTES), np.uint8)
    index = DigestIndex(held)
    assert index.find(held[::-1]).tolist() == list(range(999, -1, -1))
    assert (index.find(others) == -1).all()
    assert index.find(held[:0]).tolist() == []


def test_digests_that_begin_alike_are_told_apart():
    held = [digest(first, second) for first in (5, 1) for second in (9, 2, 7, 4)]
    index = DigestIndex(rows(held))
    assert index.find(rows(held)).tolist() == list(range(8))
    missing = [digest(first, second) for first in (0, 1, 5, 6) for second in (1, 3, 8, 10)]
    assert (index.find(rows(missing)) == -1).all()


def test_of_equal_digests_the_first_is_found():
    held = [digest(3, 3), digest(1, 1), digest(3, 3), digest(3, 3)]
    assert DigestIndex(rows(held)).find(rows([digest(3, 3), digest(1, 1)])).tolist() == [0, 1]
    zeros = np.zeros((3, DIGEST_BYTES), np.uint8)
    assert DigestIndex(zeros).find(zeros[:1]).tolist() == [0]
