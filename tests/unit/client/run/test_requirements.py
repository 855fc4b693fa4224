"""What a client requires of a coordinator: told apart key by key, in one error."""

from pathlib import Path

import pytest
import yaml

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.run.requirements import check_required, required
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import ConfigError, ExitCode, MismatchError
from laser_vfl.methods.training_settings import TrainingSettings

ROSTER = ("bank", "shop")
MET = {
    "masked_gradients": True,
    "alignment": "ecdh",
    "max_epochs": 20,
    "roster": list(ROSTER),
    "wire_precision": ["float32", "bfloat16"],
}


def config_of(tmp_path: Path, **more: object) -> ClientConfig:
    path = tmp_path / "bank.yaml"
    content = {
        "federation": "churn",
        "name": "bank",
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "state",
        "data": {"train": "bank.csv", "id": "id"},
        **more,
    }
    path.write_text(yaml.safe_dump(content))
    return load_config(path, ClientConfig)


def settings(**more: object) -> TrainingSettings:
    said = {"representation_dim": 8, "batch_size": 4, "epochs": 20, "masked_gradients": True}
    return TrainingSettings.model_validate({**said, **more})


def test_without_requirements_any_coordinator_will_do(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    check_required(config, settings(masked_gradients=False), "hmac", ("bank", "hub"))
    assert required(config) == []


def test_what_is_required_is_enough(tmp_path: Path) -> None:
    config = config_of(tmp_path, require=MET)
    check_required(config, settings(), "ecdh", ROSTER)
    check_required(config, settings(epochs=1, wire_precision="bfloat16"), "ecdh", ROSTER)
    assert required(config) == [
        "masked gradients",
        "alignment: ecdh",
        "at most 20 epochs a run",
        "wire precision float32 or bfloat16",
        "the roster bank, shop",
    ]


@pytest.mark.parametrize(
    ("key", "said", "scheme", "roster"),
    [
        ("masked_gradients", {"masked_gradients": False}, "ecdh", ROSTER),
        ("alignment", {}, "hmac", ROSTER),
        ("max_epochs", {"epochs": 21}, "ecdh", ROSTER),
        ("roster", {}, "ecdh", ("bank", "hub", "shop")),
        ("roster", {}, "ecdh", ("shop", "bank")),
        ("wire_precision", {"wire_precision": "float16"}, "ecdh", ROSTER),
    ],
)
def test_a_coordinator_that_says_otherwise_is_refused(
    key: str, said: dict[str, object], scheme: str, roster: tuple[str, ...], tmp_path: Path
) -> None:
    config = config_of(tmp_path, require=MET)
    with pytest.raises(MismatchError) as refused:
        check_required(config, settings(**said), scheme, roster)
    error = refused.value
    assert error.exit_code == ExitCode.MISMATCH
    assert f": require.{key}" in error.where
    assert "bank.yaml:" in error.where
    assert f"change require.{key} here" in error.hint
    assert "and this client requires" in error.message
    check_required(config_of(tmp_path), settings(**said), scheme, roster)


def test_all_that_differs_is_in_one_error(tmp_path: Path) -> None:
    config = config_of(tmp_path, require=MET)
    with pytest.raises(MismatchError) as refused:
        check_required(config, settings(masked_gradients=False, epochs=40), "ecdh", ROSTER)
    assert "training.masked_gradients: true, training.epochs: 20" in refused.value.hint
    assert "change require.masked_gradients and require.max_epochs here" in refused.value.hint


def test_the_roster_may_stand_where_it_stood_before_but_not_twice(tmp_path: Path) -> None:
    config = config_of(tmp_path, roster=list(ROSTER))
    check_required(config, settings(), "ecdh", ROSTER)
    with pytest.raises(MismatchError, match="requires bank, shop") as refused:
        check_required(config, settings(), "ecdh", ("bank", "hub"))
    assert refused.value.where.endswith(": roster")
    with pytest.raises(ConfigError, match="cannot be used together"):
        config_of(tmp_path, roster=list(ROSTER), require=MET)
