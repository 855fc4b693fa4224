"""Rows by blinded id, from several tables."""

import numpy as np
import torch

from laser_vfl.client.serving.row_index import RowIndex, Rowset
from laser_vfl.core.alignment import DIGEST_BYTES


def digests(*numbers):
    """Blinded ids that differ in their last byte; zero bytes at the end are part of an id too."""
    table = np.zeros((len(numbers), DIGEST_BYTES), dtype=np.uint8)
    table[:, 0] = numbers
    return table


def ids(*numbers):
    return [f"person-{number}" for number in numbers]


def rowset(*numbers, value=0.0):
    inputs = torch.tensor([[number + value, 1.0] for number in numbers]).reshape(-1, 2)
    return Rowset(digests(*numbers), inputs, ids(*numbers))


def test_rows_are_found_whatever_their_order():
    row_index = RowIndex([rowset(5, 3, 9)])
    rows = row_index.find(digests(9, 4, 5, 3))
    assert (rows >= 0).tolist() == [True, False, True, True]
    assert row_index.inputs(rows[rows >= 0])[:, 0].tolist() == [9.0, 5.0, 3.0]


def test_rows_of_several_tables_come_in_the_order_of_the_question():
    row_index = RowIndex([rowset(1, 2), rowset(3), rowset(), rowset(4, 5)])
    assert len(row_index) == 5
    rows = row_index.find(digests(4, 1, 3, 5, 2))
    assert row_index.inputs(rows)[:, 0].tolist() == [4.0, 1.0, 3.0, 5.0, 2.0]


def test_a_sample_in_two_tables_is_taken_from_the_first():
    row_index = RowIndex([rowset(1, value=0.5), rowset(2, 1)])
    assert row_index.inputs(row_index.find(digests(1, 2)))[:, 0].tolist() == [1.5, 2.0]


def test_one_question_may_name_a_sample_twice():
    row_index = RowIndex([rowset(1, 2)])
    assert row_index.inputs(row_index.find(digests(2, 2, 1)))[:, 0].tolist() == [2.0, 2.0, 1.0]


def test_nothing_is_held_without_rows():
    for row_index in (RowIndex([]), RowIndex([rowset()])):
        assert len(row_index) == 0
        assert row_index.find(digests(1, 2)).tolist() == [-1, -1]


def test_ids_that_differ_only_in_zero_bytes_at_the_end_are_different():
    long, short = digests(7), digests(7)
    long[0, -1] = 1
    row_index = RowIndex([Rowset(short, torch.zeros(1, 2), ids(7))])
    assert row_index.find(long).tolist() == [-1]
    assert row_index.find(short).tolist() == [0]


def test_inputs_of_any_shape_are_kept():
    images = torch.arange(24.0).reshape(2, 3, 2, 2)
    row_index = RowIndex(
        [
            Rowset(digests(1, 2), images, ids(1, 2)),
            Rowset(digests(3), images[:1] + 100, ids(3)),
        ]
    )
    found = row_index.inputs(row_index.find(digests(3, 2)))
    assert torch.equal(found, torch.stack([images[0] + 100, images[1]]))


def test_everybody_is_known_by_id_and_digest():
    people = RowIndex([rowset(5, 1), rowset(3, 5), rowset()]).people
    assert [list(part.ids) for part in people] == [ids(5, 1), ids(3, 5), []]
    assert all(
        np.array_equal(p.digests, digests(*n))
        for p, n in zip(people, [(5, 1), (3, 5), ()], strict=True)
    )
