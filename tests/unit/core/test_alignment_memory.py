"""What it takes to group a million people: the bound that the coordinator's limit is built on."""

import tracemalloc

import numpy as np
import pytest

from laser_vfl.core.alignment import BYTES_PER_ENTRY, DIGEST_BYTES, align, check_distinct

NUM_PEOPLE = 1_000_000


def peak_of(work):
    """Return how many bytes a piece of work takes at most, besides what is there."""
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def people():
    return np.random.default_rng(7).integers(0, 256, (NUM_PEOPLE, DIGEST_BYTES), dtype=np.uint8)


@pytest.mark.parametrize("num_clients", [1, 2, 40])
def test_grouping_a_million_takes_no_more_than_its_bound(people, num_clients):
    """Most of them are at all clients; the lists are there before, and count too."""
    size = NUM_PEOPLE // num_clients
    lists = [people[k * 50 : k * 50 + size].copy() for k in range(num_clients)]
    num_entries = sum(map(len, lists))
    peak, told = peak_of(lambda: align(lists))
    assert sum(group.size for group in told[0].groups) == size + 50 * (num_clients - 1)
    assert DIGEST_BYTES * num_entries + peak < BYTES_PER_ENTRY * num_entries + 1e6


def test_a_list_that_was_made_to_be_hard_to_sort_takes_no_more(people):
    """All of one client's digests share their first word; others tell them apart."""
    hard = people[: NUM_PEOPLE // 4].copy()
    hard[:, :8] = 0
    lists = [hard, *(people[k : k + NUM_PEOPLE // 4] for k in range(3))]
    num_entries = sum(map(len, lists))
    peak, told = peak_of(lambda: align(lists))
    assert told[0].num_rows == len(hard)
    assert DIGEST_BYTES * num_entries + peak < BYTES_PER_ENTRY * num_entries + 1e6


def test_a_list_is_checked_within_the_bound(people):
    peak, _ = peak_of(lambda: check_distinct(people))
    assert DIGEST_BYTES * NUM_PEOPLE + peak < BYTES_PER_ENTRY * NUM_PEOPLE
