"""`experiment trees`: run the comparisons and print their report."""

import json
from pathlib import Path

from rich.console import Console

from laser_vfl.cli.experiment.experiment_options import parse_p
from laser_vfl.cli.terminal_tables import say
from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.names import known
from laser_vfl.experiments.trees.trees_experiment import TABLES, TreesGrid, run_trees


def print_trees(
    out: Path,
    datasets: str,
    p: str,
    *,
    num_seeds: int,
    epochs: int,
    max_rows: tuple[int, int],
    data: Path | None,
    as_json: bool,
) -> None:
    """Run what is not there yet, write OUT/trees.md and print it."""
    names = known([word.strip() for word in datasets.split(",")], TABLES, "--dataset")
    probabilities = [value for value in parse_p(p, "--p") if not isinstance(value, str)]
    if not probabilities:
        raise ConfigError("--p: there is no probability", hint="write numbers, as 0,0.3,0.5")
    grid = TreesGrid(names, tuple(probabilities), num_seeds, epochs, *max_rows)
    console = Console(stderr=True)
    text, results = run_trees(grid, out, data, lambda line: say(console, line))
    if as_json:
        print(json.dumps({"results": results}, ensure_ascii=False))
    else:
        print(text, end="")
