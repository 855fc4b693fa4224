"""A client's tables are encoded by earlier rules for a run that an earlier release has begun."""

import asyncio

import pytest
import yaml

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import data_digest
from laser_vfl.client.tables.own_tables import open_tables
from laser_vfl.config.loading import load_config
from laser_vfl.data import EARLIER_VERSION, VERSION


@pytest.fixture
def tables(tmp_path):
    text = {
        "federation": "trial",
        "name": "bank",
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "./state",
        "data": {"train": "train.csv", "id": "id"},
    }
    (tmp_path / "bank.yaml").write_text(yaml.safe_dump(text))
    (tmp_path / "train.csv").write_text("id,x,city\nada,1,Oslo\nbob,,Rome\ncyd,3,\n")
    config = load_config(tmp_path / "bank.yaml", ClientConfig)
    return open_tables(config, StateDirectory(tmp_path / "state"))


def test_the_tables_are_encoded_anew_and_back(tables):
    now = tables.block
    assert now.encoding.to_json()["version"] == VERSION
    asyncio.run(tables.encode_as(VERSION))
    assert tables.block is now
    asyncio.run(tables.encode_as(EARLIER_VERSION))
    earlier = tables.block
    assert "version" not in earlier.encoding.to_json()
    assert data_digest(earlier) != data_digest(now)
    asyncio.run(tables.refresh())
    assert tables.block is earlier, "the run goes on with it"
    tables.mark_stale()
    asyncio.run(tables.refresh())
    assert data_digest(tables.block) == data_digest(now), "the next run has the rules of today"
