"""The map of the code: folders that fit on a page, and one meaning for each name."""

import ast
import re
import subprocess
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

import laser_vfl

ROOT = Path(laser_vfl.__file__).parent
TESTS = Path(__file__).parents[2]
MAX_MODULES = 20
LAYERS = (
    ("cli",),
    ("bench", "planning"),
    ("experiments",),
    ("client", "coordinator", "remote"),
    ("transport",),
    ("security", "observability", "data", "models", "methods", "config"),
    ("core",),
)
"""Rooms in which no file name stands twice."""
CONTRACTS = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
RANKS = {
    room: rank for rank, layer in enumerate(CONTRACTS[0]["layers"]) for room in layer.split(" | ")
}
"""The layer of each room, 0 at the top."""
A_MODULE = re.compile(rf"laser_vfl\.({'|'.join(RANKS)})(?:[.:]\w+)*")
ENTRANCES = {"__init__", "__main__"}
"""Modules right below the package that are in front of all rooms."""
OF_EACH_DAEMON = {"config.py", "daemon.py"}
"""Both daemons have the same shape."""


def modules(folder: Path) -> list[Path]:
    """Return the modules at and below a folder, but for generated ones."""
    found = folder.rglob("*.py")
    return sorted(path for path in found if path.name != "__init__.py" and "v1" not in path.parts)


def test_every_room_is_in_a_layer() -> None:
    rooms = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] not in "_."}
    assert rooms - {"v1"} == {room for layer in LAYERS for room in layer}


def test_only_storage_is_left_out_of_the_contract_on_safetensors() -> None:
    (contract,) = (c for c in CONTRACTS if c.get("forbidden_modules") == ["safetensors"])
    top = [path for path in ROOT.iterdir() if path.name[0] not in "_."]
    parts = [path for path in (ROOT / "client").iterdir() if path.name[0] not in "_."]
    names = {f"laser_vfl.{path.stem}" for path in top} - {"laser_vfl.v1", "laser_vfl.client"}
    names |= {f"laser_vfl.client.{path.stem}" for path in parts} - {"laser_vfl.client.storage"}
    assert set(contract["source_modules"]) == names


def test_no_literal_names_a_room_above() -> None:
    """What is imported by its name in a string is not seen by import-linter."""
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in sorted(ROOT.rglob("*.py"))
        if (own := path.relative_to(ROOT).parts[0].removesuffix(".py")) not in {*ENTRANCES, "v1"}
        for text, room in rooms_named(path.read_text())
        if room != own and RANKS[room] <= RANKS[own]
    ]
    assert found == []


@pytest.mark.parametrize("container", ["laser_vfl", "laser_vfl.client", "laser_vfl.coordinator"])
def test_every_module_right_below_is_in_a_layer(container: str) -> None:
    """import-linter fails for a new one that is in none."""
    (contract,) = (c for c in CONTRACTS if c.get("containers") == [container])
    assert contract["exhaustive"]
    folder = ROOT.joinpath(*container.split(".")[1:])
    found = {path.stem for path in folder.iterdir() if not path.name.startswith((".", "__"))}
    ignored = set(contract.get("exhaustive_ignores", ())) - ENTRANCES
    assert found == ignored | {name for x in contract["layers"] for name in x.split(" | ")}


def rooms_named(source: str) -> list[tuple[str, str]]:
    """Return the literals that could be imported from this package, and the room of each."""
    return [
        (node.value, named[1])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (named := A_MODULE.fullmatch(node.value))
    ]


def test_a_module_in_a_literal_is_found() -> None:
    source = "import_module('laser_vfl.cli.status')\nENGINE = 'laser_vfl.bench.steps:run'\n"
    assert {room for _, room in rooms_named(source)} == {"cli", "bench"}
    assert rooms_named("'laser_vfl'; 'see laser_vfl.cli'") == []


def test_every_folder_is_a_package() -> None:
    """A folder without `__init__.py` is left out of what import-linter sees."""
    folders = {path.parent for path in modules(ROOT)}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_nothing_of_the_package_is_ignored() -> None:
    """A build leaves out what `.gitignore` names, and so would a commit."""
    found = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"],
        input="\n".join(map(str, sorted(ROOT.rglob("*.py")))),
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.stdout == ""


@pytest.mark.parametrize("root", [ROOT, TESTS], ids=["laser_vfl", "tests"])
def test_no_folder_is_a_corridor(root: Path) -> None:
    sizes: dict[str, int] = defaultdict(int)
    for path in modules(root):
        sizes[str(path.parent.relative_to(root))] += 1
    assert {folder: size for folder, size in sizes.items() if size > MAX_MODULES} == {}


def test_no_test_file_name_stands_twice() -> None:
    """Folders of tests are no packages, so that pytest imports their files by name alone."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules(TESTS):
        if path.name != "conftest.py" and not path.is_relative_to(TESTS / "support"):
            places[path.name].append(str(path.relative_to(TESTS)))
    assert [where for where in places.values() if len(where) > 1] == []


def test_no_file_name_stands_twice_in_a_layer() -> None:
    for layer in LAYERS:
        places: dict[str, list[str]] = defaultdict(list)
        for path in (path for room in layer for path in modules(ROOT / room)):
            if path.name not in OF_EACH_DAEMON:
                places[path.name].append(str(path.relative_to(ROOT)))
        assert [where for where in places.values() if len(where) > 1] == []


def test_no_class_name_has_two_meanings() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules(ROOT):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
