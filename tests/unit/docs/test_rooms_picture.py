"""docs/rooms.svg shows the imports as they are, and the script that draws it leaves nothing out."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def draw_rooms() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "scripts" / "draw_rooms.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_fits_the_imports(draw_rooms: ModuleType) -> None:
    is_current = draw_rooms.PICTURE.read_text("utf-8") == draw_rooms.picture()
    assert is_current, "run `make rooms`, look at docs/rooms.svg and commit it"


def test_every_room_has_a_box_and_a_row_in_the_table(draw_rooms: ModuleType) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    drawn = draw_rooms.picture()
    for room in draw_rooms.rooms_of(ROOT / "laser_vfl"):
        assert f">{room}</text>" in drawn
        assert f"`{room}/`" in page or f"`{room}.py`" in page, room


def test_an_arrow_that_follows_from_others_is_left_out(draw_rooms: ModuleType) -> None:
    graph = {"cli": {"client", "core"}, "client": {"core"}, "core": set()}
    assert draw_rooms.reduced(graph) == {"cli": {"client"}, "client": {"core"}, "core": set()}
