"""A block with private labels: what is read twice is told twice the same, and only of training."""

import pytest
import torch
import yaml

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.model_building import build_learner
from laser_vfl.client.own_models import NO_MODELS, OwnModels
from laser_vfl.client.tables.block import data_digest, load_block
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.core.privacy.label_noise import RandomisedResponse
from laser_vfl.methods.training_settings import TrainingSettings

KEY = b"the own key of a bank, of 32 byt"
LABELS = {"epsilon": 1.0, "classes": ["u", "v"]}
ROWS = [f"person-{i},{i},{'uv'[i % 3 == 0]}" for i in range(200)]


@pytest.fixture
def written(tmp_path):
    def write(labels=LABELS, rows=ROWS, **data):
        names = {"train": "train.csv", "test": "test.csv", "id": "id", "label": "kind"}
        text = {
            "federation": "trial",
            "name": "bank",
            "listen": "127.0.0.1:0",
            "coordinator": "127.0.0.1:1",
            "state": "./state",
            "data": names | data,
        }
        if labels is not None:
            text["privacy"] = {"labels": labels}
        (tmp_path / "bank.yaml").write_text(yaml.safe_dump(text))
        (tmp_path / "train.csv").write_text("id,x,kind\n" + "\n".join(rows) + "\n")
        (tmp_path / "test.csv").write_text("id,x,kind\ndan,1,u\neve,2,v\nfay,3,\n")
        return load_config(tmp_path / "bank.yaml", ClientConfig)

    return write


def told(block):
    return {id: float(t) for id, t in zip(block.train.ids, block.train.targets, strict=True)}


def test_rows_in_another_order_are_told_the_same(written):
    block = load_block(written(), KEY, own_key=KEY)
    assert block.label_noise == RandomisedResponse(1.0, 2)
    again = load_block(written(), KEY, own_key=KEY)
    assert data_digest(again) == data_digest(block), "it could not come back to a run"
    backwards = load_block(written(rows=ROWS[50:][::-1]), KEY, own_key=KEY)
    assert told(backwards).items() <= told(block).items()
    other = load_block(written(), KEY, own_key=KEY[::-1])
    assert told(other) != told(block)


def test_labels_of_the_test_table_are_true(written):
    block = load_block(written(), KEY, own_key=KEY)
    true = [float(i % 3 == 0) for i in range(200)]
    assert 20 < sum(a != b for a, b in zip(told(block).values(), true, strict=True)) < 90
    assert torch.equal(block.test.targets, torch.tensor([0.0, 1.0, 0.0]))
    assert block.test.labelled.tolist() == [True, True, False]


def test_a_mistake_says_where_it_is(written):
    rows = ["ada,1,u", "bob,2,w"]
    with pytest.raises(DataError, match="row 2") as caught:
        load_block(written(rows=rows), KEY, own_key=KEY)
    assert caught.value.where.endswith("train.csv")
    with pytest.raises(ConfigError, match="not given") as caught:
        load_block(written({"epsilon": 1.0}), KEY, own_key=KEY)
    assert "bank.yaml:" in caught.value.where
    assert caught.value.where.endswith(": privacy.labels")


def test_without_a_secret_nothing_is_read(written):
    with pytest.raises(ValueError, match="secret"):
        load_block(written(), KEY)


def heads_of(config, block, own=NO_MODELS):
    settings = TrainingSettings(representation_dim=4, batch_size=8, epochs=1)
    learner = build_learner(config, block, settings, ["bank"], ["bank"], torch.device("cpu"), own)
    return learner.models["fusion"]


def test_a_head_starts_at_the_shares_of_true_classes(written):
    private = written({"epsilon": 3.0, "classes": ["u", "v"]})
    block = load_block(private, KEY, own_key=KEY)
    head = heads_of(private, block)
    assert torch.sigmoid(head.bias).item() == pytest.approx(1 / 3, abs=0.08)
    plain = written(None)
    chance = heads_of(plain, load_block(plain, KEY, own_key=KEY))
    assert torch.equal(chance.weight, head.weight), "the start is all that differs"
    assert not torch.equal(chance.bias, head.bias)
    given = torch.nn.Linear(4, 1)
    assert torch.equal(heads_of(private, block, OwnModels(fusion=given)).bias, given.bias)
