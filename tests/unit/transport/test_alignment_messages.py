"""Tables and purposes: each has one code, and each code but the unspecified is one of them."""

from laser_vfl.core.alignment_purpose import TABLES as TABLE_ORDER
from laser_vfl.core.alignment_purpose import AlignmentPurpose, tables_of
from laser_vfl.transport.alignment_messages import PURPOSES, PURPOSES_BY_CODE, TABLE_NAMES, TABLES
from laser_vfl.v1 import coordinator_pb2 as pb


def test_every_table_has_a_code_of_its_own():
    assert tuple(TABLES) == TABLE_ORDER
    assert sorted([pb.TABLE_UNSPECIFIED, *TABLES.values()]) == sorted(pb.Table.values())
    assert {TABLE_NAMES[code]: code for code in TABLE_NAMES} == TABLES


def test_every_purpose_has_a_code_of_its_own():
    assert set(PURPOSES) == set(AlignmentPurpose)
    assert sorted([pb.PURPOSE_UNSPECIFIED, *PURPOSES.values()]) == sorted(pb.Purpose.values())
    assert {PURPOSES_BY_CODE[code]: code for code in PURPOSES_BY_CODE} == PURPOSES


def test_all_that_is_aligned_can_be_sent():
    for purpose in AlignmentPurpose:
        for scheme in ("ecdh", "hmac"):
            tables = tables_of(purpose, scheme)
            assert tables
            assert len(set(tables)) == len(tables)
            assert set(tables) <= TABLES.keys()
    assert tables_of(AlignmentPurpose.UNALIGNED_IDS, "ecdh") == ("serve",)
    assert tables_of(AlignmentPurpose.RUN, "ecdh") == TABLE_ORDER
    assert "serve" not in tables_of(AlignmentPurpose.RUN, "hmac")
