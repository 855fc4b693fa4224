"""What a client finds wrong before it reads a row or creates a file."""

import asyncio

import pytest
import yaml

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.daemon import ClientDaemon
from laser_vfl.client.tables.block import load_block
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ConfigError, DataError, LaserError

TEXT = {
    "federation": "trial",
    "name": "bank",
    "listen": "127.0.0.1:0",
    "coordinator": "127.0.0.1:1",
    "state": "./state",
    "device": "cpu",
    "threads": 1,
}
DATA = {"train": "train.csv", "id": "id", "label": "kind"}


def _config(directory, **more):
    path = directory / "bank.yaml"
    (directory / "train.csv").write_text("id,income,notes,kind\na,1,x,u\nb,2,y,v\n")
    path.write_text(yaml.safe_dump(TEXT | {"data": DATA} | more))
    return load_config(path, ClientConfig)


@pytest.mark.parametrize(
    ("more", "kind", "where"),
    [
        ({"model": {"representation": "transformer"}}, ConfigError, "model.representation"),
        ({"model": {"fusion": "max"}}, ConfigError, "model.fusion"),
        ({"data": DATA | {"exclude": ["notes", "incom"]}}, DataError, "train.csv"),
    ],
)
def test_a_name_that_stands_for_nothing_ends_the_start(tmp_path, more, kind, where):
    config = _config(tmp_path, **more)

    async def start():
        async with ClientDaemon(config, insecure=True):
            pass

    with pytest.raises(LaserError) as caught:
        asyncio.run(start())
    assert type(caught.value) is kind
    assert caught.value.where.endswith(where)
    assert caught.value.hint
    assert not (tmp_path / "state").exists()


def test_a_positive_value_that_is_no_label_is_found_when_the_table_is_read(tmp_path):
    config = _config(tmp_path, data=DATA | {"positive": "yes"})
    with pytest.raises(DataError, match='"yes" is not in the label'):
        load_block(config, b"key")
