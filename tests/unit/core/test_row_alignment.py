"""Alignment against the same thing done with dicts and sets."""

import hashlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from laser_vfl.core.alignment import (
    ClientAlignment,
    Group,
    align,
    align_rows,
    check_distinct,
    listing_order,
    num_common,
    num_shared,
)
from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.core.subsets import has, mask_of


def blind(sample):
    return hashlib.sha256(str(sample).encode()).digest()


def table_of(samples):
    joined = b"".join(map(blind, samples))
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)


def clash(sample):
    """A digest that shares its first, second and third word with those of many other samples."""
    words = (0, sample % 3, sample % 2, sample)
    return b"".join(word.to_bytes(8, "little") for word in words)


def clashing_table_of(samples):
    return np.frombuffer(b"".join(map(clash, samples)), dtype=np.uint8).reshape(-1, 32)


def sorting_align(digests_by_client):
    """The grouping as it was before lists had an order: all digests sorted, byte by byte."""
    present = [(k, d) for k, d in enumerate(digests_by_client) if d is not None and len(d)]
    if not present:
        return [ClientAlignment((), {}) for _ in digests_by_client]
    holder_of = np.concatenate([np.full(len(d), k, dtype=np.uint8) for k, d in present])
    row_of = np.concatenate([np.arange(len(d), dtype=np.int64) for _, d in present])
    words = np.concatenate([np.ascontiguousarray(d).view(">u8") for _, d in present])
    order = np.lexsort(
        tuple(words[:, i].astype(np.uint64) for i in reversed(range(words.shape[1])))
    )
    words, holder_of, row_of = words[order], holder_of[order], row_of[order]
    first = np.ones(len(words), dtype=bool)
    first[1:] = (words[1:] != words[:-1]).any(axis=1)
    sample_of = np.cumsum(first) - 1
    mask_of_sample = np.zeros(sample_of[-1] + 1, dtype=np.uint64)
    np.bitwise_or.at(mask_of_sample, sample_of, np.uint64(1) << holder_of.astype(np.uint64))
    masks, group_of_sample, sizes = np.unique(
        mask_of_sample, return_inverse=True, return_counts=True
    )
    groups = tuple(Group(int(mask), int(size)) for mask, size in zip(masks, sizes, strict=True))
    group_of = group_of_sample[sample_of]

    def told_to(client):
        mine = np.flatnonzero(holder_of == client)
        my_rows = row_of[mine[np.argsort(group_of[mine], kind="stable")]]
        my_groups = [g for g, group in enumerate(groups) if has(group.observed, client)]
        ends = np.cumsum([groups[g].size for g in my_groups], dtype=np.int64)
        return ClientAlignment(groups, dict(zip(my_groups, np.split(my_rows, ends), strict=False)))

    return [told_to(client) for client in range(len(digests_by_client))]


def assert_identical(aligned, expected):
    assert [told.groups for told in aligned] == [told.groups for told in expected]
    for told, should in zip(aligned, expected, strict=True):
        assert list(told.rows) == list(should.rows)
        for g, rows in told.rows.items():
            assert rows.dtype == should.rows[g].dtype
            assert rows.tolist() == should.rows[g].tolist()


tables_of_samples = st.lists(
    st.none() | st.lists(st.integers(0, 40), unique=True, max_size=30), min_size=1, max_size=6
)
both_kinds = pytest.mark.parametrize("table_of", [table_of, clashing_table_of])


@both_kinds
@settings(max_examples=50, deadline=None)
@example(tables=[None])
@example(tables=[[], []])
@example(tables=[[1], None, []])
@example(tables=[[3, 1, 2], [2, 3, 1], [1, 2]])
@given(tables=tables_of_samples)
def test_groups_and_rows_equal_the_plain_oracle(table_of, tables):
    holders = {}  # in the order of the list of the first that holds it
    for client, samples in enumerate(tables):
        for sample in samples or ():
            holders.setdefault(sample, []).append(client)
    by_mask = {}
    for sample, clients in holders.items():
        by_mask.setdefault(mask_of(clients), []).append(sample)
    expected = [(mask, by_mask[mask]) for mask in sorted(by_mask)]

    aligned = align([None if t is None else table_of(t) for t in tables])
    assert len(aligned) == len(tables)
    for client, told in enumerate(aligned):
        assert [(g.observed, g.size) for g in told.groups] == [(m, len(s)) for m, s in expected]
        mine = {g: samples for g, (mask, samples) in enumerate(expected) if mask >> client & 1}
        rows = {g: [tables[client][row] for row in rows] for g, rows in told.rows.items()}
        assert rows == mine
        assert told.num_rows == len(tables[client] or ())
        assert num_shared(told) == sum(len(holders[sample]) > 1 for sample in tables[client] or ())


@settings(max_examples=30, deadline=None)
@given(tables_of_samples, st.binary(max_size=8))
def test_other_blinded_ids_in_the_same_lists_give_the_same_alignment(tables, salt):
    def other_table_of(samples):
        joined = b"".join(hashlib.sha256(salt + blind(sample)).digest() for sample in samples)
        return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)

    first, second = (
        align([None if t is None else make(t) for t in tables])
        for make in (table_of, other_table_of)
    )
    assert_identical(first, second)


@both_kinds
@settings(max_examples=50, deadline=None)
@example(tables=[None])
@example(tables=[[], []])
@given(tables=tables_of_samples)
def test_aligned_rows_are_those_of_the_sorted_digests(table_of, tables):
    digests = [None if t is None else table_of(t) for t in tables]
    assert_identical(align_rows(digests), sorting_align(digests))


@settings(max_examples=20, deadline=None)
@given(tables_of_samples, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter_to_aligned_rows(tables, random):
    shuffled = [None if t is None else random.sample(t, len(t)) for t in tables]

    def by_sample(tables):
        aligned = align_rows([None if t is None else table_of(t) for t in tables])
        return [
            (told.groups, {g: [t[row] for row in rows] for g, rows in told.rows.items()})
            for told, t in zip(aligned, tables, strict=True)
        ]

    assert by_sample(shuffled) == by_sample(tables)


@both_kinds
@given(samples=st.lists(st.integers(0, 40), max_size=30))
def test_the_order_of_a_list_is_that_of_its_bytes(table_of, samples):
    digests = table_of(samples)
    order = listing_order(digests)
    assert order.dtype == np.int64
    assert order.tolist() == sorted(range(len(samples)), key=lambda row: digests[row].tobytes())


def test_many_lists_of_random_digests_align_as_sorted_ones():
    random = np.random.default_rng(3)
    pool = random.integers(0, 256, (30_000, 32), dtype=np.uint8)
    tables = [pool[random.permutation(len(pool))[:size]] for size in (20_000, 5, 0, 15_000)]
    assert_identical(align_rows(tables), sorting_align(tables))
    for table in tables:
        table[::3, :8] = 0
    assert_identical(align_rows(tables), sorting_align(tables))


def test_digests_need_not_lie_in_one_piece_or_at_a_multiple_of_eight():
    samples = list(range(20))
    wide = np.zeros((20, 40), dtype=np.uint8)
    wide[:, 3:35] = table_of(samples)
    apart = wide[:, 3:35]
    shifted = np.frombuffer(b"x" + table_of(samples).tobytes(), dtype=np.uint8, offset=1)
    shifted = shifted.reshape(-1, 32)
    for digests in (apart, shifted):
        check_distinct(digests)
        assert num_common(digests, table_of([3, 7, 100])) == 2
        assert_identical(align([digests, apart]), align([table_of(samples)] * 2))
        assert_identical(align_rows([digests]), sorting_align([table_of(samples)]))


def test_samples_are_told_apart_by_any_byte_of_their_digest():
    base = np.arange(32, dtype=np.uint8)
    digests = np.tile(base, (33, 1))
    digests[np.arange(32), np.arange(32)] ^= 0xFF
    check_distinct(digests)
    (told, other) = align([digests, digests[5:6]])
    assert [(g.observed, g.size) for g in told.groups] == [(0b01, 32), (0b11, 1)]
    assert told.rows[1].tolist() == [5]
    assert other.rows[1].tolist() == [0]


@pytest.mark.parametrize("byte", range(32))
def test_one_byte_is_enough_to_tell_two_samples_apart(byte):
    digests = np.tile(np.arange(32, dtype=np.uint8), (2, 1))
    digests[0, byte] += 1
    check_distinct(digests)
    assert num_common(digests[:1], digests[1:]) == 0
    assert listing_order(digests).tolist() == [1, 0]
    first, second = align([digests[:1], digests])
    assert [(g.observed, g.size) for g in first.groups] == [(0b10, 1), (0b11, 1)]
    assert {g: rows.tolist() for g, rows in second.rows.items()} == {0: [1], 1: [0]}


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


@both_kinds
def test_common_samples_are_counted(table_of):
    assert num_common(table_of([1, 2, 3]), table_of([4, 3, 1])) == 2
    assert num_common(table_of([1]), table_of([2])) == 0
    assert num_common(table_of([]), table_of([2])) == 0
    assert num_common(table_of([]), table_of([])) == 0
    assert num_common(table_of(range(60)), table_of(range(50, 90))) == 10


@both_kinds
def test_a_repeated_digest_is_refused(table_of):
    with pytest.raises(ContractError, match="1 blinded ids were submitted twice"):
        check_distinct(table_of([1, 2, 1]))
    with pytest.raises(ContractError, match="3 blinded ids were submitted twice"):
        check_distinct(table_of([*range(30), 7, 7, 8]))
    check_distinct(table_of(range(30)))
    check_distinct(table_of([]))
