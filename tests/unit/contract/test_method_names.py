"""No code outside `laser_vfl/methods` decides by a method's name, or writes one down.

What depends on a method is asked of its parts or of its profile. So a new method is a new module
in `laser_vfl/methods` and two entries there.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import laser_vfl
from laser_vfl.experiments.grid.names import PRODUCT_DEFAULTS
from laser_vfl.methods.profiles import PROFILES

PACKAGE = Path(laser_vfl.__file__).parent
NAMES = "|".join(PROFILES)
A_NAME = re.compile(f"{NAMES}|{re.escape(PRODUCT_DEFAULTS)}")
"""Literals that are one; experiments have a name of their own for the product's defaults."""
IN_A_SENTENCE = re.compile(rf"\bmethods?[:=]? ?[\"']?({NAMES})\b")
"""Advice to use one: "use method: local"."""
WITH_A_VALUE = re.compile(rf"(^|,)\s*({NAMES})\s*=")
"""What is said of a method on a command line: "vfedtrans=3"."""
OTHER_WORD = re.compile(r"scaling", re.IGNORECASE)
"""`scaling: standard` is about features. Only what is called so may have the word."""


def found_in(source: str) -> list[tuple[int, str]]:
    """Return the line and the text of each literal that is, or advises, a method's name."""
    tree = ast.parse(source)
    skipped = set(map(id, _docstrings(tree))) | set(map(id, _other_words(tree)))
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in skipped
        and (
            A_NAME.fullmatch(node.value)
            or IN_A_SENTENCE.search(node.value)
            or WITH_A_VALUE.search(node.value)
        )
    ]


def _docstrings(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield strings that stand by themselves: docstrings, also those of attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _other_words(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all within what is assigned to, or compared with, something called scaling."""
    for node in ast.walk(tree):
        named: list[tuple[str, ast.AST | None]] = []
        if isinstance(node, ast.Assign):
            named = [(ast.unparse(target), node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign):
            named = [(ast.unparse(node.target), node.value)]
        elif isinstance(node, ast.keyword):
            named = [(node.arg or "", node.value)]
        elif isinstance(node, ast.Compare):
            named = [(ast.unparse(node.left), each) for each in node.comparators]
        elif isinstance(node, ast.arguments):
            every = [*node.posonlyargs, *node.args]
            given = every[len(every) - len(node.defaults) :]
            named = [(a.arg, d) for a, d in zip(given, node.defaults, strict=True)]
            named += [(a.arg, d) for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)]
        for name, value in named:
            if value is not None and OTHER_WORD.search(name):
                yield from ast.walk(value)


def modules() -> list[Path]:
    return sorted(
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("methods", "v1")
    )


def test_no_methods_name_is_a_literal_outside_methods():
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text!r}"
        for path in modules()
        for line, text in found_in(path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert len(modules()) > 200


@pytest.mark.parametrize(
    "source",
    [
        "if settings.method == 'vfedtrans': pass",
        "RELATIVE = {'combinatorial': 4.0}",
        "case.method in ('plug', x)",
        "match method:\n    case 'local': pass",
        "METHOD = 'laser-mixed'",
        "problem('no labels', 'use method: local')",
        "f'agree on training.method: laser with {who}'",
        "def train(method='laser', scaling='none'): pass",
        "Method = Literal['laser', 'local']",
        "scaled = method == 'standard'",
        "def scaling(max_clients_of='combinatorial=7'): pass",
        "parse(text, 'local=1, vfedtrans=3')",
        "f'combinatorial={most}'",
    ],
)
def test_a_name_is_found(source):
    assert len(found_in(source)) >= 1


@pytest.mark.parametrize(
    "source",
    [
        "'''Runs laser.'''\nx = 1",
        "class A:\n    x: int\n    'standard'",
        "Scaling = Literal['standard', 'none']",
        "def read(scaling: str = 'standard'): pass",
        "def read(*, scaling: str = 'standard'): pass",
        "scaling: Scaling = 'standard'",
        "if table.scaling == 'standard': pass",
        "TableSpec(scaling='standard')",
        "print('a local test of the standard ensemble')",
        "name = 'laser_vfl'",
    ],
)
def test_other_words_are_left_alone(source):
    assert found_in(source) == []
