"""The rows that are served: of all tables, in the encoding that a model was trained with."""

import numpy as np
import pytest
import yaml

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.serving.models.served_tables import ServedTables
from laser_vfl.client.tables.block import load_block
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.table_listing import Keys, blinded_by
from laser_vfl.config.loading import load_config

KEYS = Keys(b"k" * 32, b"o" * 32)
BLIND = blinded_by(KEYS, "trial")


@pytest.fixture
def config(tmp_path):
    """A client with arrays that have labels, and no `features`."""
    config = {
        "federation": "trial",
        "name": "bank",
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "./state",
        "data": {"train": "train.npz", "test": "test.npz", "id": "id", "label": "kind"},
    }
    (tmp_path / "bank.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "state").mkdir()
    write(tmp_path, "train", ["a", "b", "c"])
    write(tmp_path, "test", ["d", "e"])
    return load_config(tmp_path / "bank.yaml", ClientConfig)


def write(directory, name, ids, scale=1.0):
    block = scale * np.arange(2.0 * len(ids), dtype=np.float32).reshape(-1, 2)
    kinds = np.array(["u", "v"] * len(ids))[: len(ids)]
    np.savez(directory / f"{name}.npz", id=np.array(ids), x=block, kind=kinds)


def test_tables_that_have_changed_are_served_in_the_encoding_of_an_older_model(config, tmp_path):
    forgotten = ErasureList(config.state, KEYS, "trial")
    before = load_block(config, KEYS.digest, forgotten)
    write(tmp_path, "train", ["a", "b", "c", "f"], scale=7.0)
    after = load_block(config, KEYS.digest, forgotten)
    assert after.encoding.to_json() != before.encoding.to_json()
    tables = ServedTables(config, after, BLIND, forgotten)
    rows = tables.row_index(before.encoding)
    assert (rows.find(BLIND(list("abcdef"))) >= 0).all()
    assert len(tables.row_index(after.encoding)) == 6
