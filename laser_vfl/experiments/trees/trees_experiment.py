"""All comparisons of an experiment, each kept when it has ended, so that a stopped one goes on."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.trees.credit_tables import load_credit
from laser_vfl.experiments.trees.diamonds_tables import load_diamonds
from laser_vfl.experiments.trees.flights_tables import load_flights
from laser_vfl.experiments.trees.table_set import TableSet
from laser_vfl.experiments.trees.trees_report import trees_report
from laser_vfl.experiments.trees.trees_run import MODELS, Comparison, TreesResult

TABLES: Final[Mapping[str, Callable[[Path | None], TableSet]]] = {
    "credit": load_credit,
    "flights": load_flights,
    "diamonds": load_diamonds,
}
RESULTS: Final = "trees.jsonl"
REPORT: Final = "trees.md"


@dataclass(frozen=True)
class TreesGrid:
    """Which comparisons are asked for."""

    datasets: tuple[str, ...]
    p: tuple[float, ...]
    num_seeds: int
    epochs: int
    max_train: int
    max_test: int


def run_trees(
    grid: TreesGrid, out: Path, data: Path | None, progress: Callable[[str], None]
) -> tuple[str, list[TreesResult]]:
    """Run what is not there yet; return the report, which is written, too, and all results."""
    path = out / RESULTS
    _prepare(out)
    settings = {key: value for key, value in asdict(grid).items() if key in _SHARED}
    done = _read(path, settings)
    results: list[TreesResult] = []
    notes = []
    for name in grid.datasets:
        table = TABLES[name](data).reduced(grid.max_train, grid.max_test)
        notes.append(table.note)
        for p in grid.p:
            for seed in range(grid.num_seeds):
                key = (name, p, seed)
                if key not in done:
                    progress(f"{name}, p {p:g}, seed {seed}")
                    done[key] = Comparison(table, p, seed, grid.epochs).results()
                    with path.open("a", encoding="utf-8") as file:
                        for result in done[key]:
                            file.write(json.dumps({**result, "settings": settings}) + "\n")
                results += done[key]
    notes.append(
        f"At most {grid.max_train} rows for training and {grid.max_test} for testing, "
        f"{grid.epochs} epochs, {grid.num_seeds} seeds; ± is the sample standard deviation."
    )
    text = trees_report(results, notes)
    (out / REPORT).write_text(text, encoding="utf-8")
    return text, results


_SHARED: Final = ("epochs", "max_train", "max_test")


def _prepare(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})", where=str(out), hint="give another --out"
        ) from None


def _read(
    path: Path, settings: Mapping[str, int]
) -> dict[tuple[str, float, int], list[TreesResult]]:
    """Return what a command with the same settings has left; a comparison counts when whole."""
    found: dict[tuple[str, float, int], dict[str, TreesResult]] = {}
    lines: Sequence[str] = path.read_text("utf-8").splitlines() if path.exists() else ()
    for number, line in enumerate(lines, 1):
        try:
            stored = json.loads(line)
            key = (stored["dataset"], stored["p"], stored["seed"])
            if stored.pop("settings") == settings:
                found.setdefault(key, {})[stored["model"]] = stored
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(
                "this is no result", where=f"{path}:{number}", hint="take the line out, run again"
            ) from None
    return {
        key: [by_model[model] for model in MODELS]
        for key, by_model in found.items()
        if set(MODELS) <= set(by_model)
    }
