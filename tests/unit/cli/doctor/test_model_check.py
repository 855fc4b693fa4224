"""`doctor` builds the models for the tables, and says which key is at fault when that fails."""

import pytest
import yaml

from laser_vfl.cli.doctor.local_checks import check_models, check_tables
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ExitCode

ROWS = "".join(f"{number},{number % 7},{'no' if number % 2 else 'yes'}\n" for number in range(40))


@pytest.fixture
def check(tmp_path):
    def checked(model, **others):
        (tmp_path / "bank.csv").write_text("id,age,y\n" + ROWS)
        client = {
            "federation": "churn",
            "name": "bank",
            "coordinator": "127.0.0.1:7000",
            "listen": "127.0.0.1:7001",
            "state": "state",
            "data": {"train": "bank.csv", "id": "id", "label": "y"},
            "model": model,
            **others,
        }
        path = tmp_path / "bank.yaml"
        path.write_text(yaml.safe_dump(client))
        config = load_config(path, ClientConfig)
        findings = check_tables(config)
        while True:
            try:
                assert next(findings).status != "FAIL"
            except StopIteration as read:
                return check_models(config, read.value)

    return checked


@pytest.mark.parametrize(
    "model",
    [
        {},
        {"representation": "tabular"},
        {"representation": "tabular", "representation_options": {"width": 3}},
        {"hidden": [3], "fusion": "mlp", "fusion_options": {"hidden": 3}},
    ],
)
def test_models_that_can_be_built_are_ok(check, model):
    assert check(model).status == "ok"


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (
            {"representation": "tabular", "representation_options": {"widht": 3}},
            "model.representation_options",
        ),
        (
            {"representation": "tabular", "representation_options": {"dropout": 1}},
            "model.representation_options",
        ),
        ({"representation": "resnet18"}, "model.representation"),
        ({"representation": "lstm"}, "model.representation"),
        ({"representation": "tabular", "hidden": [32]}, "model.hidden"),
        ({"fusion": "mlp", "fusion_options": {"hidden": "x"}}, "model.fusion_options"),
        ({"fusion_options": {"hidden": 3}}, "model.fusion_options"),
    ],
)
def test_a_model_that_cannot_be_built_fails_at_the_key_at_fault(check, model, key):
    finding = check(model)
    assert (finding.status, finding.exit_code) == ("FAIL", ExitCode.CONFIG)
    assert finding.message.split(": ")[1] == key


def test_a_model_of_ones_own_waits_for_the_width(check):
    model = {"representation": "torch.nn:Identity"}
    assert check(model).status == "ok"
    assert check(model, representation_dim=8).status == "FAIL"
