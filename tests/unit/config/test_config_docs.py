"""The pages that a user is sent to exist and are complete."""

import re
from pathlib import Path

import pytest
from config_fields import fields
from pydantic import BaseModel

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ExitCode

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "configuration.md").read_text("utf-8")
CODES = DOCS / "exit-codes"


def keys_documented(title: str) -> set[str]:
    section = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert section
    return set(re.findall(r"^\| `([a-z_.]+)` \|", section[1], re.MULTILINE))


def keys_of(model: type[BaseModel]) -> set[str]:
    return {".".join(path) for path in fields(model)}


def test_every_key_of_the_coordinator_is_documented_and_no_other() -> None:
    assert keys_documented("coordinator.yaml") == keys_of(CoordinatorConfig)


def test_every_key_of_the_client_is_documented_and_no_other() -> None:
    tls = {
        "tls.ca",
        "tls.authorities",
        "tls.cert",
        "tls.key",
    }  # documented once, with the coordinator
    assert keys_documented("client.yaml") | tls == keys_of(ClientConfig)


@pytest.mark.parametrize(
    ("index", "model"), [(0, CoordinatorConfig), (1, ClientConfig)], ids=["coordinator", "client"]
)
def test_the_examples_load(index: int, model: type[BaseModel], tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[index], "utf-8")
    load_config(file, model)


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_has_a_page_and_a_row(code: ExitCode) -> None:
    assert (CODES / f"{code.value}.md").read_text("utf-8").startswith(f"# {code.value}: ")
    assert f"| [{code.value}]({code.value}.md) |" in (CODES / "README.md").read_text("utf-8")


def test_no_page_without_an_exit_code() -> None:
    pages = {path.stem for path in CODES.glob("*.md")} - {"README"}
    assert pages == {str(code.value) for code in ExitCode}
