"""The outcome of an alignment comes in pieces, and ends at what there can be."""

import numpy as np
import pytest

from laser_vfl.client.session.outcome_checks import OutcomeReader, TableLimits, table_limits
from laser_vfl.core.alignment import Group
from laser_vfl.core.errors import ContractError
from laser_vfl.v1 import coordinator_pb2 as pb

TRAIN, TEST = pb.TABLE_TRAIN, pb.TABLE_TEST
MOST = TableLimits(num_rows=3, num_groups=2)


def groups(*pairs: tuple[int, int], table: "pb.Table.ValueType" = TRAIN) -> object:
    told = [pb.Group(observed=observed, size=size) for observed, size in pairs]
    return pb.FetchAlignmentResponse(table=table, groups=told)


def rows(group: int, *places: int, table: "pb.Table.ValueType" = TRAIN) -> object:
    data = np.array(places, dtype="<i8").tobytes()
    return pb.FetchAlignmentResponse(table=table, rows=pb.GroupRows(group=group, rows=data))


def told(*pieces: object, most: TableLimits = MOST) -> OutcomeReader:
    taken = OutcomeReader({"train": most})
    for piece in pieces:
        taken.add(piece)
    return taken


def test_pieces_make_a_whole() -> None:
    taken = told(groups((1, 2)), groups((3, 1)), rows(0, 2), rows(0, 0), rows(1, 1))
    whole = taken.whole()["train"]
    assert whole.groups == (Group(1, 2), Group(3, 1))
    assert {g: places.tolist() for g, places in whole.rows.items()} == {0: [2, 0], 1: [1]}


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([rows(0, 0, 1), rows(1, 2), rows(0, 0)], "more rows than the 3 that this client listed"),
        ([rows(0, 0, 1, 2, 3)], "more rows than the 3"),
        ([groups((1, 1), (2, 1)), groups((3, 1))], "more groups than the 2 that there can be"),
        ([groups((1, 1), (2, 1), (3, 1))], "more groups than the 2"),
        ([rows(0, 1, table=TEST)], "a table that nobody submitted"),
        ([pb.FetchAlignmentResponse(table=TRAIN, rows=pb.GroupRows(rows=b"short"))], "8 bytes"),
    ],
)
def test_the_first_piece_that_is_too_much_is_refused(pieces: list[object], says: str) -> None:
    taken = told(*pieces[:-1])
    with pytest.raises(ContractError, match=says):
        taken.add(pieces[-1])


def test_rows_of_nothing_are_not_kept() -> None:
    taken = told(*(rows(group) for group in range(100)))
    assert not taken.whole()["train"].rows


def test_who_waits_for_the_reason_only_takes_nothing() -> None:
    for piece in (groups((1, 1)), rows(0, 0)):
        with pytest.raises(ContractError):
            told(piece, most=TableLimits())


def test_there_are_no_more_groups_than_people_or_sets_of_members() -> None:
    assert table_limits(7, [4, 3, 100]) == TableLimits(7, 7)
    assert table_limits(7, [1, 2, 0]) == TableLimits(7, 3)
    assert table_limits(0, [1] * 64) == TableLimits(0, 64)
