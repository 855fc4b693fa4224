"""Alignment against the same thing done with dicts and sets."""

import hashlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laser_vfl.core.alignment import align, check_distinct, num_common, num_shared
from laser_vfl.core.errors import DataError
from laser_vfl.core.subsets import mask_of


def blind(sample):
    return hashlib.sha256(str(sample).encode()).digest()


def table_of(samples):
    joined = b"".join(map(blind, samples))
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)


tables_of_samples = st.lists(
    st.none() | st.lists(st.integers(0, 40), unique=True, max_size=30), min_size=1, max_size=6
)


@settings(max_examples=50, deadline=None)
@example([None])
@example([[], []])
@example([[1], None, []])
@given(tables_of_samples)
def test_groups_and_rows_equal_the_plain_oracle(tables):
    holders = {}
    for client, samples in enumerate(tables):
        for sample in samples or ():
            holders.setdefault(sample, []).append(client)
    by_mask = {}
    for sample, clients in holders.items():
        by_mask.setdefault(mask_of(clients), []).append(sample)
    expected = [(mask, sorted(by_mask[mask], key=blind)) for mask in sorted(by_mask)]

    aligned = align([None if t is None else table_of(t) for t in tables])
    assert len(aligned) == len(tables)
    for client, told in enumerate(aligned):
        assert [(g.observed, g.size) for g in told.groups] == [(m, len(s)) for m, s in expected]
        mine = {g: samples for g, (mask, samples) in enumerate(expected) if mask >> client & 1}
        rows = {g: [tables[client][row] for row in rows] for g, rows in told.rows.items()}
        assert rows == mine
        assert told.num_rows == len(tables[client] or ())
        assert num_shared(told) == sum(len(holders[sample]) > 1 for sample in tables[client] or ())


@settings(max_examples=20, deadline=None)
@given(tables_of_samples, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(tables, random):
    shuffled = [None if t is None else random.sample(t, len(t)) for t in tables]

    def by_sample(tables):
        aligned = align([None if t is None else table_of(t) for t in tables])
        return [
            (told.groups, {g: [t[row] for row in rows] for g, rows in told.rows.items()})
            for told, t in zip(aligned, tables, strict=True)
        ]

    assert by_sample(shuffled) == by_sample(tables)


def test_samples_are_told_apart_by_any_byte_of_their_digest():
    base = np.arange(32, dtype=np.uint8)
    digests = np.tile(base, (33, 1))
    digests[np.arange(32), np.arange(32)] ^= 0xFF
    check_distinct(digests)
    (told, other) = align([digests, digests[5:6]])
    assert [(g.observed, g.size) for g in told.groups] == [(0b01, 32), (0b11, 1)]
    assert told.rows[1].tolist() == [5]
    assert other.rows[1].tolist() == [0]


def test_a_digest_that_ends_in_zeros_is_a_digest_like_any_other():
    digests = np.zeros((3, 32), dtype=np.uint8)
    digests[1, 30] = digests[2, 31] = 1
    check_distinct(digests)
    assert align([digests])[0].groups[0].size == 3


def test_all_64_clients():
    aligned = align([table_of([0, k + 1]) for k in range(64)])
    assert aligned[63].groups[-1].observed == 2**64 - 1
    assert sorted(aligned[63].rows) == [63, 64]
    assert aligned[0].groups[63].observed == 2**63


def test_more_than_64_clients_are_refused():
    with pytest.raises(DataError, match="at most 64"):
        align([None] * 65)


def test_common_samples_are_counted():
    assert num_common(table_of([1, 2, 3]), table_of([4, 3, 1])) == 2
    assert num_common(table_of([1]), table_of([2])) == 0
    assert num_common(table_of([]), table_of([2])) == 0


def test_a_repeated_digest_is_refused():
    with pytest.raises(DataError, match="1 blinded ids were submitted twice"):
        check_distinct(table_of([1, 2, 1]))
    check_distinct(table_of([]))
