"""The record of a run: read as written, private, whole or not at all."""

import stat
from dataclasses import replace

import numpy as np
import pytest
import torch

from laser_vfl.client.storage.run_record import (
    FILE_NAME,
    RunRecord,
    read_record,
    write_record,
)
from laser_vfl.client.tables.block import Block, EncodedTable, data_digest
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import StateUnwritable
from laser_vfl.methods.training_settings import TrainingSettings

SETTINGS = TrainingSettings(
    representation_dim=8, batch_size=4, epochs=2, seed=2**62, preset="paper"
)


def record_of(train):
    return RunRecord(
        run="run-1",
        roster=("bank", "shop", "café"),
        scheme="ecdh",
        settings=SETTINGS,
        heads=("shop",),
        tables={"train": train, "test": ClientAlignment((), {})},
        data_sha256="ab" * 32,
    )


RECORD = record_of(
    ClientAlignment(
        (Group(0b001, 2), Group(0b011, 3), Group(2**63, 9), Group(0b101, 0), Group(0b111, 1)),
        {
            0: np.array([7, 1]),
            1: np.array([0, 5, 3]),
            3: np.array([], dtype=np.int64),
            4: np.array([2]),
        },
    )
)


def assert_same(found, expected):
    assert replace(found, tables={}) == replace(expected, tables={})
    assert found.tables.keys() == expected.tables.keys()
    for table, alignment in expected.tables.items():
        assert found.tables[table].groups == alignment.groups
        assert found.tables[table].rows.keys() == alignment.rows.keys()
        for g, rows in alignment.rows.items():
            assert found.tables[table].rows[g].dtype == np.int64
            assert np.array_equal(found.tables[table].rows[g], rows)


def test_a_record_is_read_as_it_was_written(tmp_path):
    write_record(tmp_path / "run-1", RECORD)
    assert_same(read_record(tmp_path / "run-1"), RECORD)
    path = tmp_path / "run-1" / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [child.name for child in path.parent.iterdir()] == [FILE_NAME]


def test_many_groups_are_read_as_they_were_written(tmp_path):
    sizes = np.random.default_rng(1).integers(0, 5, size=20_000)
    groups = tuple(Group(mask, size) for mask, size in enumerate(sizes.tolist(), start=1))
    rows = {g: np.arange(group.size) + g for g, group in enumerate(groups) if g % 2}
    record = record_of(ClientAlignment(groups, rows))
    write_record(tmp_path, record)
    assert_same(read_record(tmp_path), record)


def test_without_a_file_there_is_no_record(tmp_path, caplog):
    assert read_record(tmp_path) is None
    assert read_record(tmp_path / "missing") is None
    assert not caplog.text


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"no such thing",
        lambda content: content[:-7],
        lambda content: flipped(content, len(content) - 8),
        lambda content: content.replace(b"bank", b"tank"),
        lambda content: content.replace(b'"sha256"', b'"sha257"'),
    ],
    ids=["empty", "text", "cut off", "a row", "a name", "no digest"],
)
def test_a_damaged_record_is_none_and_is_named(tmp_path, caplog, damage):
    write_record(tmp_path, RECORD)
    path = tmp_path / FILE_NAME
    before = path.read_bytes()
    path.write_bytes(damage(before))
    assert path.read_bytes() != before
    assert read_record(tmp_path) is None
    assert f"{path} cannot be used" in caplog.text


def test_a_record_whose_parts_do_not_fit_is_none(tmp_path, caplog):
    write_record(tmp_path, record_of(ClientAlignment((Group(1, 3),), {0: np.array([1, 2])})))
    assert read_record(tmp_path) is None
    assert "its parts do not fit" in caplog.text


def test_a_directory_that_cannot_be_written_has_a_name(tmp_path):
    (tmp_path / "run-1").write_text("a file")
    with pytest.raises(StateUnwritable):
        write_record(tmp_path / "run-1", RECORD)


class Stored:
    """Stands for an encoding."""

    def __init__(self, value):
        self.value = value

    def to_json(self):
        return {"value": self.value}


def table_of(first, labels=(0, 1, 1)):
    digests = np.arange(first, first + 96, dtype=np.uint8).reshape(3, 32)
    targets, labelled = torch.tensor(labels), np.array([True, True, False])
    return EncodedTable(["a", "b", "c"], digests, torch.zeros(3, 2), targets, labelled)


def test_the_digest_of_data_tells_tables_apart():
    block = Block(Stored(1), Stored(2), table_of(0), table_of(96))
    assert data_digest(block) == data_digest(replace(block, train=table_of(0)))
    reordered = replace(block.train, digests=block.train.digests[::-1])
    others = [
        replace(block, encoding=Stored(3)),
        replace(block, labels=Stored(3)),
        replace(block, labels=None),
        replace(block, train=reordered),
        replace(block, train=table_of(0, (1, 1, 1))),
        replace(block, train=block.test, test=block.train),
        replace(block, test=None),
    ]
    assert len({data_digest(other) for other in [block, *others]}) == 1 + len(others)
