"""Nothing in the source runs what is in a file or a message."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "laser_vfl"
FILES = sorted(path for path in SOURCE.rglob("*.py") if "v1" not in path.parts)

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
CALLS = {"eval", "exec", "compile", "__import__", "torch.load", "yaml.load", "yaml.unsafe_load"}
IMPORTERS = {"importlib.import_module", "import_module"}
MAY_IMPORT = {"__init__.py", "models/factory.py", "experiments/engines/engine_registry.py"}
"""The names of the package itself, models that the organisation's own configuration names, and
engines of experiments that somebody names on the command line."""


def _dangers(source: str) -> list[str]:
    """Return what a file does that may run data."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found += [name] if name in CALLS | IMPORTERS else []
            found += [
                "allow_pickle"
                for word in node.keywords
                if word.arg == "allow_pickle" and ast.unparse(word.value) != "False"
            ]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_runs_data(path: Path) -> None:
    found = _dangers(path.read_text())
    if str(path.relative_to(SOURCE)) in MAY_IMPORT:
        found = [name for name in found if name not in IMPORTERS]
    assert not found


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(path)",
        "eval(text)",
        "yaml.load(text)",
        "np.load(path, allow_pickle=True)",
        "__import__(name)",
        "importlib.import_module(name)",
    ],
)
def test_a_danger_is_seen(source: str) -> None:
    assert _dangers(source)
