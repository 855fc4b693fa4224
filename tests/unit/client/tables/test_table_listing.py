"""Lists of people: each comes once, in an order that says nothing about the table."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.client.tables.table_listing import NOBODY, People, listing
from laser_vfl.core.alignment import DIGEST_BYTES, ClientAlignment, Group, listing_order
from laser_vfl.data import blind_ids

KEY = b"this client's own key, of which nobody else knows"


def people(*ids):
    return People(list(ids), blind_ids(ids, KEY, "trial"))


names = st.lists(st.text("abc", max_size=3).map(lambda text: f"person-{text}"), max_size=12)
parts = st.lists(names.map(lambda ids: list(dict.fromkeys(ids))), max_size=4)


@settings(max_examples=30)
@given(parts)
def test_everybody_comes_once_and_points_back_to_a_row(tables):
    rows = [id for table in tables for id in table]
    found = listing(*(people(*table) for table in tables))
    assert len(found) == len(set(rows))
    assert sorted(found.ids) == sorted(set(rows))
    assert [rows[row] for row in found.rows] == found.ids
    assert found.rows.tolist() == [rows.index(id) for id in found.ids]
    assert np.array_equal(found.digests, people(*found.ids).digests)


@settings(max_examples=30)
@given(names, st.randoms(use_true_random=False))
def test_the_order_is_that_of_the_digests_and_not_that_of_the_rows(ids, random):
    ids = list(dict.fromkeys(ids))
    shuffled = random.sample(ids, len(ids))
    found = listing(people(*ids))
    assert listing(people(*shuffled)).ids == found.ids
    assert found.rows.tolist() == listing_order(people(*ids).digests).tolist()
    as_bytes = [digest.tobytes() for digest in found.digests]
    assert as_bytes == sorted(as_bytes)


def test_another_key_gives_another_order():
    ids = [f"person-{number}" for number in range(20)]
    other = People(ids, blind_ids(ids, b"the key of somebody else altogether", "trial"))
    assert listing(other).ids != listing(people(*ids)).ids
    assert sorted(listing(other).ids) == sorted(ids)


def test_digests_that_begin_alike_are_still_sorted_and_told_apart():
    digests = np.zeros((4, DIGEST_BYTES), np.uint8)
    digests[:, -1] = [3, 1, 2, 1]
    found = listing(People(["c", "a", "b", "a"], digests))
    assert found.ids == ["a", "b", "c"]
    assert found.rows.tolist() == [1, 2, 0]


def test_a_part_keeps_the_order():
    wanted = people("d", "b", "a").digests

    def is_in(digests):
        return (digests[:, None] == wanted).all(axis=2).any(axis=1)

    whole = people("a", "b", "c", "d", "e")
    part = whole.part(is_in(whole.digests))
    assert part.ids == ["a", "b", "d"]
    assert np.array_equal(part.digests, people("a", "b", "d").digests)
    assert not len(whole.part(np.zeros(5, bool)).ids)


def test_the_order_is_drawn_from_the_key_and_not_from_digests_or_rows():
    names = [f"person {i}" for i in range(50)]
    by_key = listing(people(*names), order=b"a key")
    again = listing(people(*reversed(names)), order=b"a key")
    assert by_key.ids == again.ids
    assert [names[row] for row in by_key.rows] == by_key.ids
    assert sorted(by_key.ids) == sorted(names)
    for other in (listing(people(*names)), listing(people(*names), order=b"another")):
        assert by_key.ids != other.ids


def test_places_in_the_list_become_rows_of_the_table():
    found = listing(people("a", "b", "c"))
    groups = (Group(1, 1), Group(3, 2))
    told = ClientAlignment(groups, {0: np.array([2]), 1: np.array([1, 0])})
    at_rows = found.at_rows(told)
    assert at_rows.groups == groups
    assert at_rows.rows[0].tolist() == [found.rows[2]]
    assert at_rows.rows[1].tolist() == [found.rows[1], found.rows[0]]


def test_nobody_is_a_list_too():
    for found in (listing(), listing(NOBODY), listing(NOBODY, NOBODY)):
        assert len(found) == 0
        assert found.digests.shape == (0, DIGEST_BYTES)
        assert found.rows.dtype == np.int64
