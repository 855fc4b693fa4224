"""`experiment`: the options of the commands that reproduce the paper's tables and figures."""

from pathlib import Path
from typing import Annotated

import typer

from laser_vfl.cli.experiment.experiment_options import (
    Clients,
    Data,
    Dataset,
    EngineName,
    Epochs,
    Jobs,
    Methods,
    Out,
    Plot,
    PTest,
    PTrain,
    Seeds,
    SeedsOf,
    Sets,
)
from laser_vfl.cli.options import Format, FormatOption
from laser_vfl.experiments.grid.names import MAX_CLIENTS_OF

experiment_app = typer.Typer(
    help="The paper's tables and figures, run and written down.", no_args_is_help=True
)


@experiment_app.command("table")
def experiment_table(
    out: Out,
    dataset: Dataset = "hapt",
    methods: Methods = "all",
    p_train: PTrain = "0,0.1,0.5",
    p_test: PTest = "0,0.1,0.5",
    seeds: Seeds = 5,
    seeds_of: SeedsOf = "",
    clients: Clients = "4",
    epochs: Epochs = None,
    sets: Sets = [],  # noqa: B006
    jobs: Jobs = None,
    engine: EngineName = "oracle",
    data: Data = None,
    plot: Plot = True,
    output: FormatOption = Format.TEXT,
) -> None:
    """Score all methods for all probabilities of missing blocks: the paper's main table."""
    from laser_vfl.cli.experiment.experiment_running import RunOptions, run_experiment
    from laser_vfl.cli.experiment.requested_grids import GridOptions

    grid_options = GridOptions(
        dataset, methods, p_train, p_test, seeds, seeds_of, clients, epochs, sets
    )
    options = RunOptions(out, jobs, engine, data, plot, output is Format.JSON)
    raise typer.Exit(run_experiment("table", grid_options.grid(), options))


@experiment_app.command("nonuniform")
def experiment_nonuniform(
    out: Out,
    dataset: Dataset = "hapt",
    methods: Methods = "all",
    p_train: PTrain = "beta,0.5",
    p_test: PTest = "0,0.1,0.5,beta",
    seeds: Seeds = 5,
    seeds_of: SeedsOf = "",
    epochs: Epochs = None,
    sets: Sets = [],  # noqa: B006
    jobs: Jobs = None,
    engine: EngineName = "oracle",
    data: Data = None,
    plot: Plot = True,
    output: FormatOption = Format.TEXT,
) -> None:
    """Compare blocks missing with probabilities of their own, from Beta(2, 2), with p = 0.5."""
    from laser_vfl.cli.experiment.experiment_running import RunOptions, run_experiment
    from laser_vfl.cli.experiment.requested_grids import GridOptions

    grid_options = GridOptions(
        dataset, methods, p_train, p_test, seeds, seeds_of, "4", epochs, sets
    )
    options = RunOptions(out, jobs, engine, data, plot, output is Format.JSON)
    raise typer.Exit(run_experiment("nonuniform", grid_options.grid(), options))


@experiment_app.command("scaling")
def experiment_scaling(
    out: Out,
    dataset: Dataset = "hapt",
    methods: Methods = "all",
    clients: Clients = "2,3,4,5,6,7,8",
    p_train: PTrain = "0.1",
    p_test: PTest = "0.1",
    seeds: Seeds = 5,
    seeds_of: SeedsOf = "",
    max_clients_of: Annotated[
        str,
        typer.Option(metavar="METHOD=K,…", help="Run these methods for so many clients at most."),
    ] = MAX_CLIENTS_OF,
    epochs: Epochs = None,
    sets: Sets = [],  # noqa: B006
    jobs: Jobs = None,
    engine: EngineName = "oracle",
    data: Data = None,
    plot: Plot = True,
    output: FormatOption = Format.TEXT,
) -> None:
    """Score and time the methods for growing numbers of clients; `all` is without VFedTrans."""
    from laser_vfl.cli.experiment.experiment_running import RunOptions, run_experiment
    from laser_vfl.cli.experiment.requested_grids import GridOptions

    grid_options = GridOptions(
        dataset, methods, p_train, p_test, seeds, seeds_of, clients, epochs, sets
    )
    options = RunOptions(out, jobs, engine, data, plot, output is Format.JSON)
    raise typer.Exit(run_experiment("scaling", grid_options.scaling(max_clients_of), options))


@experiment_app.command("ablation")
def experiment_ablation(
    out: Out,
    kind: Annotated[
        str, typer.Option("--kind", help="What to vary: batching, loss-weighting, labels, tasks.")
    ] = "batching",
    dataset: Dataset = "hapt",
    clients: Annotated[
        str | None, typer.Option("--clients", metavar="K,…", help="How many clients.")
    ] = None,
    p_train: Annotated[
        str | None, typer.Option("--p-train", metavar="P,…", help="0.5, or what the kind is about.")
    ] = None,
    p_test: Annotated[
        str | None, typer.Option("--p-test", metavar="P,…", help="As --p-train if left out.")
    ] = None,
    seeds: Seeds = 5,
    epochs: Epochs = None,
    sets: Sets = [],  # noqa: B006
    jobs: Jobs = None,
    engine: EngineName = "oracle",
    data: Data = None,
    plot: Plot = True,
    output: FormatOption = Format.TEXT,
) -> None:
    """Vary one choice of LASER-VFL and leave everything else as it is."""
    from laser_vfl.cli.experiment.experiment_running import RunOptions, run_experiment
    from laser_vfl.cli.experiment.requested_grids import ablation_grid

    grid = ablation_grid(kind, dataset, clients, p_train, p_test, seeds, epochs, sets)
    options = RunOptions(out, jobs, engine, data, plot, output is Format.JSON)
    raise typer.Exit(run_experiment(f"ablation {kind}", grid, options))


@experiment_app.command("trees")
def experiment_trees(
    out: Out,
    dataset: Dataset = "credit",
    p: Annotated[
        str, typer.Option("--p", metavar="P,…", help="How likely a block is missing.")
    ] = "0,0.3,0.5",
    seeds: Seeds = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of the federation.")] = 20,
    max_train: Annotated[int, typer.Option(min=100, help="Training rows at most.")] = 1_000_000,
    max_test: Annotated[int, typer.Option(min=100, help="Test rows at most.")] = 1_000_000,
    data: Data = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Compare a federation on real tables (credit, flights, diamonds) with boosted trees."""
    from laser_vfl.cli.experiment.trees_running import print_trees

    print_trees(
        out,
        dataset,
        p,
        num_seeds=seeds,
        epochs=epochs,
        max_rows=(max_train, max_test),
        data=data,
        as_json=output is Format.JSON,
    )


@experiment_app.command("show")
def experiment_show(
    directory: Annotated[Path, typer.Argument(metavar="OUT", help="Where results are.")],
    plot: Plot = True,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write the tables and pictures of an experiment again, and run nothing."""
    from laser_vfl.cli.experiment.experiment_report import show_report

    show_report(directory, plot=plot, as_json=output is Format.JSON)
