"""`data show`, and what doctor and a client's log say of columns."""

import json
import logging

import pytest
import yaml
from typer.testing import CliRunner

from laser_vfl.cli.doctor.local_checks import check_tables
from laser_vfl.cli.main import app
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.tables.block import load_block
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ConfigError

LABELS = ["yes", "YES", "no"]


@pytest.fixture
def written(tmp_path):
    rows = [
        f"{row},D{row % 7},N{row},2013-01-{row % 28 + 1:02},{row % 9},{LABELS[row % 3]}"
        for row in range(120)
    ]
    header = "id,dest,tail,dep,x,late\n"
    (tmp_path / "train.csv").write_text(header + "\n".join(rows) + "\n")

    def write(**data):
        text = {
            "federation": "churn",
            "name": "bank",
            "listen": "127.0.0.1:0",
            "coordinator": "127.0.0.1:1",
            "state": "./state",
            "data": {"train": "train.csv", "id": "id", "label": "late", **data},
        }
        (tmp_path / "bank.yaml").write_text(yaml.safe_dump(text))
        return tmp_path / "bank.yaml"

    return write


def show(path, *options):
    result = CliRunner().invoke(app, ["data", "show", "--config", str(path), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_each_column_is_shown(written):
    columns = {"x": {"type": "category", "max_values": 3}, "tail": {"type": "category"}}
    shown = json.loads(show(written(columns=columns), "--format", "json"))
    assert shown["rows"] == 120
    told = {column["name"]: column for column in shown["columns"]}
    assert {name: column["type"] for name, column in told.items()} == {
        "dest": "category",
        "tail": "category",
        "dep": "datetime",
        "x": "category",
    }
    assert (told["x"]["values"], told["x"]["values_kept"]) == (9, 3)
    assert (told["tail"]["values"], told["tail"]["values_kept"]) == (120, 0)
    assert told["dep"]["scaling"] == "age, weekday"
    assert [remark["code"] for remark in shown["label"]] == ["classes_alike"]


def test_text_names_what_is_left_out(written):
    text = show(written())
    for word in ("dest", "left out", "ids have", "120 rows", "classes"):
        assert word in text


def test_doctor_and_the_log_say_it_in_short(written, caplog):
    config = load_config(written(), ClientConfig)
    findings = list(check_tables(config))
    assert not [finding for finding in findings if finding.status == "FAIL"]
    told = [(f.status, f.check) for f in findings]
    assert ("ok", "data.columns") in told
    assert ("warn", "data.columns") in told
    assert ("warn", "data.label") in told
    with caplog.at_level(logging.INFO):
        block = load_block(config, b"key")
    assert block.encoding.unused_columns == ("tail",)
    assert 'left out: "tail"' in caplog.text
    assert "classes" in caplog.text
    assert "N17" not in caplog.text, "no value of a table is logged"


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ({"dest": {"type": "categry"}}, "data.columns.dest.type"),
        ({"dest": {"max_values": 3}}, "data.columns.dest.max_values"),
        ({"dest": {"type": "category", "max_values": 0}}, "data.columns.dest.max_values"),
        ({"dest": {"type": "category", "scaling": "none"}}, "data.columns.dest.scaling"),
        ({"dep": {"type": "datetime", "format": "plain"}}, "data.columns.dep.format"),
        ({"dep": {"type": "datetime", "reference": "2013-02-30"}}, "data.columns.dep.reference"),
        ({"dest": {"sort": "category"}}, "data.columns.dest.sort"),
        ({"dest": "category"}, "data.columns.dest"),
        ({"id": {"type": "category"}}, "data.columns.id"),
        ({"late": {"type": "category"}}, "data.columns.late"),
    ],
)
def test_a_mistake_in_columns_says_where_it_is(written, columns, key):
    with pytest.raises(ConfigError) as caught:
        load_config(written(columns=columns), ClientConfig)
    assert caught.value.where.endswith(f": {key}")
    assert caught.value.hint


def test_columns_that_are_not_used_cannot_be_described(written):
    columns = {"dest": {"type": "category"}}
    for other in ({"exclude": ["dest"]}, {"features": ["x"]}):
        with pytest.raises(ConfigError) as caught:
            load_config(written(columns=columns, **other), ClientConfig)
        assert caught.value.where.endswith(": data.columns.dest")


def test_a_reference_may_be_a_date_of_yaml(written):
    path = written(columns={"dep": {"type": "datetime", "reference": "2014-01-01"}})
    path.write_text(path.read_text().replace("'2014-01-01'", "2014-01-01"))
    config = load_config(path, ClientConfig)
    assert config.data.columns["dep"].reference == "2014-01-01"
