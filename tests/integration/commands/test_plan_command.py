"""`laser-vfl plan`: a result that can be read and one that can be parsed, and wrong input."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from laser_vfl.cli.main import app
from laser_vfl.cli.plan.plan_command import PlanOptions, make_plan
from laser_vfl.cli.plan.plan_text import duration, size
from laser_vfl.core.errors import ConfigError, DataError, MismatchError

pytestmark = pytest.mark.core

ROSTER = ["bank", "shop", "telco"]


@pytest.fixture
def config(tmp_path):
    return write_config(tmp_path)


def write_config(directory, **training):
    content = {
        "federation": "churn",
        "listen": "127.0.0.1:0",
        "state": "./state",
        "clients": ROSTER,
        "training": {"representation_dim": 32, "batch_size": 64, "epochs": 5, **training},
        "alignment": "hmac",
    }
    path = directory / "coordinator.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def plan(path, **options):
    given = {"bandwidth": "100mbit", "rtt": "20ms", "compute": "8ms", "samples": 640, **options}
    return make_plan(PlanOptions(path, **given))


def ask(path, *words):
    given = ["--bandwidth", "100mbit", "--rtt", "20ms", *words]
    return CliRunner().invoke(app, ["plan", "--config", str(path), *given])


def test_json_is_what_python_gets(config):
    result = ask(config, "--samples", "640", "--compute", "8ms", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == plan(config)


def test_content(config):
    found = plan(config)
    step, run = found["step"], found["run"]
    assert (found["steps_per_epoch"], found["num_steps"]) == (10, 50)
    assert step["payload_sent"] == 2 * 6 * 64 * 32 * 4
    assert step["payload_sent"] < step["tcp_sent"] < step["link_sent"]
    assert run["payload_sent"] == 50 * step["payload_sent"]
    assert run["seconds"] == pytest.approx(50 * step["seconds"])
    parts = step["compute_s"] + step["latency_s"] + step["bandwidth_s"]
    assert step["seconds"] == pytest.approx(parts)
    assert step["bound_by"] == "latency"
    assert [client["client"] for client in found["clients"]] == ROSTER
    assert sum(client["run"]["payload_up"] for client in found["clients"]) == run["payload_sent"]


def test_text(config):
    lines = ask(config, "--samples", "640", "--compute", "8ms").stdout.splitlines()
    assert any("most of it is latency" in line for line in lines)
    assert any("640 training samples (given), 0.0% of their blocks missing" in x for x in lines)
    assert any(line.startswith("training: 50 steps of 30.8 ms: 1.54 s") for line in lines)


def test_samples_are_assumed_and_computing_measured_when_nobody_says(config):
    result = ask(config, "--format", "json")
    found = json.loads(result.stdout)
    assert found["samples"]["num"] == 10_000
    assert found["samples"]["source"] == "assumed: give --samples"
    assert 0 < found["compute"]["step_s"] < 10
    assert 0 < found["compute"]["frame_s"] < 1


def test_missing_blocks_and_labels(config):
    found = plan(config, p_missing="telco=0.5", labels="shop,bank", test_samples=100)
    assert found["labels"] == found["heads"] == ["bank", "shop"]
    assert found["samples"]["held"]["bank"] == 640
    assert 250 < found["samples"]["held"]["telco"] < 390
    assert [stage["name"] for stage in found["stages"]] == ["training", "evaluation"]


def test_one_head_of_standard(tmp_path):
    assert plan(write_config(tmp_path, method="standard"))["heads"] == ["bank"]


def test_overlaps(config, tmp_path):
    path = tmp_path / "overlaps.json"
    patterns = [
        {"blocks": ["bank", "telco"], "num_samples": 100},
        {"blocks": ROSTER, "num_samples": 300},
    ]
    tables = {"train": {"patterns": patterns}, "test": {"patterns": patterns[:1]}}
    path.write_text(json.dumps({"tables": tables}))
    found = plan(config, overlaps=path, samples=None)
    held = {"bank": 400, "shop": 300, "telco": 400}
    assert (found["samples"]["num"], found["samples"]["num_test"]) == (400, 100)
    assert found["samples"]["held"] == held


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"tables": []}',
        '{"tables": {"train": {"patterns": [{"blocks": ["firm"], "num_samples": 3}]}}}',
        '{"tables": {"train": {"patterns": [{"blocks": ["bank"], "num_samples": 0}]}}}',
        '{"tables": {"train": {"patterns": [{"blocks": [], "num_samples": 3}]}}}',
        '{"tables": {"train": {"patterns": []}}}',
    ],
)
def test_overlaps_that_are_none(config, tmp_path, text):
    path = tmp_path / "overlaps.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"overlaps\.json"):
        plan(config, overlaps=path, samples=None)


def test_overlaps_that_are_not_there(config, tmp_path):
    with pytest.raises(DataError, match="cannot be read"):
        plan(config, overlaps=tmp_path / "none.json", samples=None)


def test_hints(tmp_path):
    found = plan(write_config(tmp_path), bandwidth="1mbit")
    assert [hint["key"] for hint in found["hints"]] == ["training.wire_precision"]
    assert found["hints"][0]["seconds"] < 0.6 * found["run"]["seconds"]
    found = plan(write_config(tmp_path, batching="by_pattern"), p_missing="0.5", samples=100)
    hints = {hint["key"]: hint for hint in found["hints"]}
    assert hints["training.batching"]["seconds"] < found["run"]["seconds"]
    assert not plan(write_config(tmp_path, method="local"))["hints"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bandwidth": "100"}, "write bits as 100mbit"),
        ({"rtt": "20"}, "write it as 20ms"),
        ({"compute": "quick"}, "--compute"),
        ({"p_missing": "1"}, "--p-missing"),
        ({"p_missing": "0.99999999"}, "hardly any sample would have a block"),
        ({"labels": "firm"}, "--labels"),
        ({"running": True}, "--samples and --running both"),
        ({"running": True, "samples": None, "p_missing": "0.1"}, "drop --p-missing"),
    ],
)
def test_wrong_options(config, options, said):
    with pytest.raises(ConfigError, match=said):
        plan(config, **options)


def test_a_wrong_option_is_one_line(config):
    result = ask(config, "--compute", "quick")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == '--compute: "quick" is no time; write it as 20ms or 0.02s'


def client_config(directory, name="bank", label="y"):
    rows = "\n".join(f"{i},{i % 7},{i % 2}" for i in range(40))
    (directory / "bank.csv").write_text(f"id,x,y\n{rows}\n")
    content = {
        "federation": "churn",
        "name": name,
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "./bank-state",
        "data": {"train": "bank.csv", "id": "id", **({"label": label} if label else {})},
        "threads": 1,
    }
    path = directory / "bank.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_computing_is_measured_with_a_client(config, tmp_path):
    found = plan(config, compute=None, client_config=client_config(tmp_path))
    assert found["compute"]["origin"] == "measured here with the model and data of bank"
    assert found["compute"]["step_s"] > 0
    crowded = plan(config, compute=None, client_config=client_config(tmp_path), cores=1)
    assert crowded["compute"]["origin"].endswith("3 clients on 1 cores")


def test_a_client_without_labels(config, tmp_path):
    path = client_config(tmp_path, label=None)
    found = plan(config, compute=None, client_config=path)
    assert found["labels"] == ["shop", "telco"]
    with pytest.raises(ConfigError, match=r"bank has no data\.label"):
        plan(config, compute=None, client_config=path, labels="bank")


def test_a_client_of_another_federation(config, tmp_path):
    with pytest.raises(MismatchError, match="firm is not in the roster"):
        plan(config, compute=None, client_config=client_config(tmp_path, name="firm"))


def test_a_client_and_a_time_are_one_too_many(config, tmp_path):
    with pytest.raises(ConfigError, match="keep one of them"):
        plan(config, client_config=client_config(tmp_path))


def test_nobody_runs(config):
    result = ask(config, "--running", "--compute", "8ms")
    assert "does not seem to be up" in str(result.exception)


def test_numbers_for_people():
    assert [size(n) for n in (0, 999, 68_512, 5.41e6, 2.5e12)] == [
        "0 B",
        "999 B",
        "68.5 kB",
        "5.41 MB",
        "2,500 GB",
    ]
    times = (0, 0.0316, 50.2, 59.99, 200, 3599.9, 7260, 360_000)
    assert [duration(s) for s in times] == [
        "0 ms",
        "31.6 ms",
        "50.2 s",
        "60 s",
        "3 min 20 s",
        "1 h 0 min",
        "2 h 1 min",
        "100 h 0 min",
    ]
