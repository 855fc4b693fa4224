"""Draws docs/rooms.svg: which room of laser_vfl imports which, read from the imports of the code.

Rows are the layers of pyproject.toml. An arrow that follows from others is left out: where cli
imports client and client imports core, there is no arrow from cli to core. Imports that
pyproject.toml excuses from the layers (`ignore_imports`) are not drawn.

`--check` draws nothing, and ends with 1 when the picture no longer fits the code.
"""

import ast
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "laser_vfl"
PICTURE = ROOT / "docs" / "rooms.svg"
LEFT_OUT = {"__init__", "__main__", "v1"}  # what only gathers names, and what is generated

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN, TITLE, SHIFT = 124, 32, 34, 44, 24, 40, 90
COLOURS = ("#1f5fa8", "#b5502b", "#2f7d4f", "#7b4fa3", "#8a6d1f", "#a23a63", "#40707c")

Graph = dict[str, set[str]]


def rooms_of(folder: Path) -> Graph:
    """Return the folders and modules right below `folder`, and which of them each imports."""
    package = ".".join(folder.relative_to(ROOT).parts)
    names = {path.stem for path in folder.iterdir() if path.suffix == ".py" or path.is_dir()}
    rooms = {name for name in names if name not in LEFT_OUT and not name.startswith("_")}
    graph: Graph = {room: set() for room in sorted(rooms)}
    excused = _excused()
    for room in graph:
        place = folder / room
        files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
        for file in files:
            importer = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            for module in _imported(ast.parse(file.read_text("utf-8"))):
                if module.startswith(f"{package}.") and not module.startswith(excused[importer]):
                    graph[room].add(module.removeprefix(f"{package}.").split(".")[0])
        graph[room] &= rooms - {room}
    return {room: imports for room, imports in graph.items() if _is_code(folder / room)}


def _excused() -> Mapping[str, tuple[str, ...]]:
    """Return, for each module, what it may import against the layers."""
    excused: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for contract in _contracts():
        for line in contract.get("ignore_imports", ()):
            importer, imported = line.split(" -> ")
            excused[importer] += (imported,)
    return excused


def _contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def _is_code(place: Path) -> bool:
    return not place.is_dir() or any(place.rglob("*.py"))


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def reduced(graph: Mapping[str, set[str]]) -> Graph:
    """Return the graph without arrows that follow from others."""
    reached = {room: _reached(graph, room) for room in graph}
    return {
        room: {to for to in imports if not any(to in reached[via] for via in imports - {to})}
        for room, imports in graph.items()
    }


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for room in graph[waiting.pop()] - found:
            found.add(room)
            waiting.append(room)
    return found


def rows_of(package: str, graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the rooms from top to bottom, in the layers that pyproject.toml gives them."""
    for contract in _contracts():
        if contract["type"] == "layers" and package in contract.get("containers", ["laser_vfl"]):
            layers = [re.findall(r"\w+(?= *[|:]|$)", layer) for layer in contract["layers"]]
            break
    else:
        raise SystemExit(f"{package} has no layers in pyproject.toml")
    rows = [[room for room in layer if room in graph] for layer in layers]
    rows[-1] += [room for room in graph if not any(room in row for row in rows)]
    return _ordered([row for row in rows if row], graph)


def _ordered(rows: list[list[str]], graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Put each room near the rooms that it is joined to, so that few arrows cross."""
    joined: Graph = {
        room: imports | {r for r in graph if room in graph[r]} for room, imports in graph.items()
    }
    for _ in range(8):
        place = {
            room: x
            for level, row in enumerate(rows)
            for room, x in zip(row, _centres(len(row), level), strict=True)
        }
        for row in rows:
            row.sort(
                key=lambda room: (
                    sum(place[r] for r in joined[room]) / max(len(joined[room]), 1),
                    room,
                )
            )
    return rows


def _centres(count: int, level: int) -> list[float]:
    """Return where the rooms of a row stand; rows are shifted so that arrows can pass."""
    step, shift = WIDTH + GAP_X, SHIFT * (-1, 0, 1, 0)[level % 4] if count < 4 else 0
    return [(k - (count - 1) / 2) * step + shift for k in range(count)]


@dataclass(frozen=True)
class Panel:
    """The rooms of one package, in rows below a title, with an arrow for each import."""

    package: str
    graph: Graph
    rows: list[list[str]]

    @classmethod
    def of(cls, package: str) -> "Panel":
        graph = rooms_of(ROOT / package.replace(".", "/"))
        return cls(package, reduced(graph), rows_of(package, graph))

    @property
    def width(self) -> int:
        return max(len(row) for row in self.rows) * (WIDTH + GAP_X) - GAP_X

    @property
    def height(self) -> int:
        return TITLE + len(self.rows) * (HEIGHT + GAP_Y)

    def draw(self, left: int, top: int) -> Iterator[str]:
        """Yield the elements of this panel: arrows first, boxes over them."""
        middle = left + self.width / 2
        at = {
            room: (middle + x, top + TITLE + level * (HEIGHT + GAP_Y))
            for level, row in enumerate(self.rows)
            for room, x in zip(row, _centres(len(row), level), strict=True)
        }
        yield f'<text x="{middle:g}" y="{top + 16}" font-weight="bold">{self.package}</text>'
        for number, (room, imports) in enumerate(sorted(self.graph.items())):
            for to in sorted(imports):
                yield _arrow(at[room], at[to], number % len(COLOURS))
        for room, (x, y) in sorted(at.items()):
            box = f'x="{x - WIDTH / 2:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6"'
            yield f'<rect {box}/><text x="{x:g}" y="{y + 22:g}">{room}</text>'


def _arrow(start: tuple[float, float], end: tuple[float, float], colour: int) -> str:
    (x1, y1), (x2, y2) = start, end
    y1 += HEIGHT
    if y1 == y2 + HEIGHT:  # a neighbour in the same row: below both
        y2, bend, way = y2 + HEIGHT, GAP_Y * 0.7, -1
    else:
        bend, way = GAP_Y * 0.8, 1
    curve = f"M{x1:g},{y1:g} C{x1:g},{y1 + bend:g} {x2:g},{y2 - way * bend:g} {x2:g},{y2:g}"
    return f'<path d="{curve}" stroke="{COLOURS[colour]}" marker-end="url(#arrow{colour})"/>'


def picture() -> str:
    """Return the picture as SVG text."""
    whole = Panel.of("laser_vfl")
    inner = [Panel.of("laser_vfl.client"), Panel.of("laser_vfl.coordinator")]
    width = max(whole.width, sum(panel.width for panel in inner) + 2 * GAP_X) + 2 * MARGIN
    height = whole.height + max(panel.height for panel in inner) + 2 * MARGIN
    markers = (
        f'<marker id="arrow{number}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0,0 L10,5 L0,10 z" style="fill:{colour}"/>'
        "</marker>"
        for number, colour in enumerate(COLOURS)
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="DejaVu Sans, Verdana, sans-serif" font-size="13">',
        "<!-- written by scripts/draw_rooms.py -->",
        "<style>path{fill:none;stroke-width:1.4}rect.page{fill:#fff;stroke:none}"
        "rect{fill:#eaf2fb;stroke:#1f5fa8}text{text-anchor:middle;fill:#222}</style>",
        f"<defs>{''.join(markers)}</defs>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        *whole.draw((width - whole.width) // 2, MARGIN),
    ]
    left, top = MARGIN, whole.height + 2 * MARGIN
    for panel in inner:
        lines += panel.draw(left, top)
        left += panel.width + 2 * GAP_X
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Write the picture, or with --check see whether it fits."""
    drawn = picture()
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(drawn, "utf-8")
    elif PICTURE.read_text("utf-8") != drawn:
        raise SystemExit(f"{PICTURE.relative_to(ROOT)} does not fit the imports: run make rooms")


if __name__ == "__main__":
    main()
