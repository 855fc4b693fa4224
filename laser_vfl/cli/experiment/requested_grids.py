"""From the options of the `experiment` commands to the grid of runs that they ask for."""

from dataclasses import dataclass, replace
from typing import Final

from laser_vfl.cli.experiment.experiment_options import (
    MAX_SEEDS,
    parse_changes,
    parse_counts,
    parse_datasets,
    parse_methods,
    parse_numbers_of,
    parse_p,
)
from laser_vfl.data.sets.dataset import ORGANISATIONS
from laser_vfl.experiments.grid.ablations import ABLATIONS, METHOD
from laser_vfl.experiments.grid.expansion import Grid
from laser_vfl.experiments.grid.names import METHODS, known, profile_of

SCALABLE: Final = tuple(name for name in METHODS if not profile_of(name).grows_with_pairs)
MAX_CLIENTS: Final = len(ORGANISATIONS)


@dataclass(frozen=True)
class GridOptions:
    """The options that describe a grid, as they were written."""

    dataset: str
    methods: str
    p_train: str
    p_test: str
    seeds: int
    seeds_of: str
    clients: str
    epochs: int | None
    sets: list[str]

    def grid(self, every: tuple[str, ...] = tuple(METHODS)) -> Grid:
        """Return what is to be combined; `every` is what `all` methods stand for."""
        return Grid(
            datasets=parse_datasets(self.dataset),
            methods=parse_methods(self.methods, every),
            p_train=parse_p(self.p_train, "--p-train"),
            p_test=parse_p(self.p_test, "--p-test"),
            num_seeds=self.seeds,
            num_seeds_of=parse_numbers_of(self.seeds_of, "--seeds-of", 0, MAX_SEEDS),
            num_clients=parse_counts(self.clients, "--clients", MAX_CLIENTS),
            changes=parse_changes(self.epochs, self.sets),
        )

    def scaling(self, max_clients_of: str) -> Grid:
        """Return the same for growing numbers of clients."""
        most = parse_numbers_of(max_clients_of, "--max-clients-of", 1, MAX_CLIENTS)
        return replace(self.grid(SCALABLE), max_clients_of=most)


def ablation_grid(
    kind: str,
    dataset: str,
    clients: str | None,
    p_train: str | None,
    p_test: str | None,
    seeds: int,
    epochs: int | None,
    sets: list[str],
) -> Grid:
    """Return the variants of an ablation, with its own defaults where an option is left out."""
    known([kind], ABLATIONS, "--kind")
    ablation = ABLATIONS[kind]
    trained = p_train or ablation.p_miss
    options = GridOptions(
        dataset,
        METHOD,
        trained,
        p_test or trained,
        seeds,
        "",
        clients or ablation.clients,
        epochs,
        sets,
    )
    return replace(options.grid(), variants=ablation.variants)
