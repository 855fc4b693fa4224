"""Every field of both files, given something wrong, answers with one helpful line."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_fields import fields
from config_texts import CLIENT, COORDINATOR
from pydantic import BaseModel

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.config.validation_errors import expectation_at
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ConfigError

TEXTS: dict[type[BaseModel], str] = {ClientConfig: CLIENT, CoordinatorConfig: COORDINATOR}
CONTENTS: dict[type[BaseModel], Any] = {m: yaml.safe_load(text) for m, text in TEXTS.items()}
WRONG: list[Any] = [{"nested": [1]}, "\u2028 not\nthis", -3.5, [{"a": 1}]]


CASES = [
    pytest.param(model, path, id=f"{model.__name__}.{'.'.join(path)}")
    for model in TEXTS
    for path in fields(model)
]


def refused(model: type[BaseModel], content: dict[str, Any], directory: Path) -> ConfigError | None:
    file = directory / "a.yaml"
    file.write_text(json.dumps(content))  # JSON is YAML, and quicker to write
    try:
        load_config(file, model)
    except ConfigError as error:
        return error
    return None


def with_value(model: type[BaseModel], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    content: dict[str, Any] = copy.deepcopy(CONTENTS[model])
    content["tls"] = {"ca": "a", "cert": "b", "key": "c"}
    if model is CoordinatorConfig:
        content["start"] = {"quorum": 1, "after_s": 0}
    else:
        content["serving"] = {"deadline_s": 0.5}
        content["privacy"] = {"delta": 0.5}
        content["require"] = {"max_epochs": 5}
        if path[:2] == ("privacy", "labels"):
            content["privacy"]["labels"] = {"epsilon": 1}
    section = content
    for part in path[:-1]:
        section = section[part]
    section[path[-1]] = value
    return content


def check(error: ConfigError, path: tuple[str, ...], directory: Path) -> None:
    line = str(error)
    assert len(line.splitlines()) == 1
    assert re.match(rf"{re.escape(str(directory))}/a\.yaml:[0-9]+:[0-9]+: ", line)
    assert f": {'.'.join(path)}" in error.where
    assert error.message
    assert error.hint
    for leak in ("Input should", "pydantic", "http", "validation error", "None", "Value error"):
        assert leak not in line


@pytest.mark.parametrize(("model", "path"), CASES)
def test_a_wrong_value(model: type[BaseModel], path: tuple[str, ...], tmp_path: Path) -> None:
    num_refused = 0
    for value in WRONG:
        error = refused(model, with_value(model, path, value), tmp_path)
        if error:
            check(error, path, tmp_path)
            num_refused += 1
    # Text, numbers and lists are each right for some field; most are wrong for any.
    assert num_refused >= 2


@pytest.mark.parametrize(("model", "path"), CASES)
def test_an_unknown_neighbour(
    model: type[BaseModel], path: tuple[str, ...], tmp_path: Path
) -> None:
    misspelt = (*path[:-1], path[-1] + "x")
    error = refused(model, with_value(model, misspelt, 1), tmp_path)
    assert error is not None
    check(error, misspelt, tmp_path)
    assert error.message == "unknown key"
    assert path[-1] in error.hint


@pytest.mark.parametrize(("model", "path"), CASES)
def test_left_out(model: type[BaseModel], path: tuple[str, ...], tmp_path: Path) -> None:
    content = with_value(model, path, None)
    section = content
    for part in path[:-1]:
        section = section[part]
    del section[path[-1]]
    error = refused(model, content, tmp_path)
    around = expectation_at(model, path[:-1]).section
    assert around is not None
    if path[-2:] == ("tls", "ca"):  # authorities may take its place
        assert error is not None
        assert "ca:" in error.hint
    elif around.model_fields[path[-1]].is_required():
        assert error is not None
        check(error, path, tmp_path)
        assert error.message == "this key is missing"
        assert path[-1] in error.hint
    else:
        assert error is None
