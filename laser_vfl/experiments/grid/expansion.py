"""From what a person asks for to the training runs that it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.case import Case, Changes, PMiss


@dataclass(frozen=True)
class Variant:
    """A setting of an ablation: its name, and what it changes."""

    name: str = ""
    changes: Changes = ()


@dataclass(frozen=True)
class Grid:
    """All that is to be combined with all."""

    datasets: tuple[str, ...]
    methods: tuple[str, ...]
    p_train: tuple[PMiss, ...]
    p_test: tuple[PMiss, ...]
    num_seeds: int
    num_seeds_of: Mapping[str, int] = field(default_factory=dict)
    num_clients: tuple[int, ...] = (4,)
    max_clients_of: Mapping[str, int] = field(default_factory=dict)
    variants: tuple[Variant, ...] = (Variant(),)
    changes: Changes = ()


def expand(grid: Grid) -> list[Case]:
    """Return the runs of a grid, seed by seed, so that a table fills evenly."""
    seeds = {name: grid.num_seeds_of.get(name, grid.num_seeds) for name in grid.methods}
    cases = [
        Case(
            dataset=dataset,
            method=method,
            p_train=p_train,
            p_test=grid.p_test,
            seed=seed,
            num_clients=num_clients,
            variant=variant.name,
            changes=merged(variant.changes, grid.changes),
        )
        for dataset, seed, num_clients, variant, p_train, method in product(
            grid.datasets,
            range(max(seeds.values(), default=0)),
            grid.num_clients,
            grid.variants,
            grid.p_train,
            grid.methods,
        )
        if seed < seeds[method] and num_clients <= grid.max_clients_of.get(method, num_clients)
    ]
    if not cases:
        raise ConfigError("there is nothing to run", hint="check --methods and --seeds-of")
    return cases


def merged(first: Changes, then: Changes) -> Changes:
    """Return both, in the order of their names; what comes later counts."""
    return tuple(sorted({**dict(first), **dict(then)}.items()))
