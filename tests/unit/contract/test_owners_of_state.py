"""What a part knows of itself is changed by its own verbs, and not by whoever holds it."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import laser_vfl
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.coordinator.rules.alignment.alignment import Alignment
from laser_vfl.coordinator.rules.registration import Registration
from laser_vfl.coordinator.rules.run import Run

PACKAGE = Path(laser_vfl.__file__).parent


def set_from_outside(source: str, names: set[str]) -> list[int]:
    """Return the lines where one of these attributes of anything but `self` gets a value."""
    return [
        target.lineno
        for target in _targets(ast.parse(source))
        if isinstance(target, ast.Attribute)
        and target.attr in names
        and not (isinstance(target.value, ast.Name) and target.value.id == "self")
    ]


def _targets(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        given = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign | ast.AugAssign):
            given = [node.target]
        for target in given:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]


@pytest.mark.parametrize(
    ("owner", "room"),
    [
        (Registration, "coordinator/rules"),
        (Run, "coordinator"),
        (Alignment, "coordinator"),
        (ServedModel, "client/serving/models"),
    ],
)
def test_its_fields_are_set_by_itself(owner: type, room: str) -> None:
    names = {field.name for field in fields(owner)}  # type: ignore[arg-type]
    modules = sorted((PACKAGE / room).rglob("*.py"))
    found = [
        f"{path.relative_to(PACKAGE)}:{line}"
        for path in modules
        for line in set_from_outside(path.read_text(encoding="utf-8"), names)
    ]
    assert found == []
    assert modules


@pytest.mark.parametrize(
    "source",
    ["r.session += 1", "self.registry[name].verdict = x", "r.seen_at, r.rejected = now, False"],
)
def test_a_field_that_is_set_from_outside_is_found(source: str) -> None:
    assert set_from_outside(source, {"session", "verdict", "seen_at"}) == [1]
