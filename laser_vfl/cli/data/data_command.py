"""`data`: the options of the commands about a client's table and the paper's data sets."""

from pathlib import Path
from typing import Annotated

import typer

from laser_vfl.cli.options import Format, FormatOption
from laser_vfl.methods.profiles import DEFAULT_METHOD

data_app = typer.Typer(
    help="How a client reads its table; the paper's data sets, and federations made of them.",
    no_args_is_help=True,
)

Root = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Where the files are; else LASER_VFL_DATA, ../shared/data."
    ),
]


@data_app.command("show")
def data_show(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The client's configuration.")],
    output: FormatOption = Format.TEXT,
) -> None:
    """Show how each column of a client's training table is read, and what looks wrong."""
    from laser_vfl.cli.data.column_listing import run_show

    run_show(config, as_json=output is Format.JSON)


@data_app.command("list")
def data_list(root: Root = None, output: FormatOption = Format.TEXT) -> None:
    """Show the data sets, which of them are here, and where to get the others."""
    from laser_vfl.cli.data.listing import run_list

    run_list(root, as_json=output is Format.JSON)


@data_app.command("prepare")
def data_prepare(
    dataset: Annotated[str, typer.Argument(metavar="SET", help="Such as hapt; see data list.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A new directory for all files.")],
    clients: Annotated[int, typer.Option(min=1, max=8, help="How many organisations.")] = 4,
    p_miss: Annotated[
        str,
        typer.Option(metavar="P", help='Chance that a block is missing, or "beta".'),
    ] = "0",
    p_miss_test: Annotated[
        str | None, typer.Option(metavar="P", help="The same for test samples; else --p-miss.")
    ] = None,
    method: Annotated[
        str, typer.Option(help="The method whose settings to take.")
    ] = DEFAULT_METHOD,
    seed: Annotated[int, typer.Option(min=0, help="For missing blocks and for training.")] = 0,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Configure plaintext; only on loopback.")
    ] = False,
    root: Root = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write the files and configurations of a federation that holds a data set in blocks."""
    from laser_vfl.cli.data.preparing import parse_p_miss, run_prepare
    from laser_vfl.experiments.prepared_federation import PrepareOptions

    p_train = parse_p_miss(p_miss)
    p_test = p_train if p_miss_test is None else parse_p_miss(p_miss_test)
    options = PrepareOptions(dataset, out, clients, p_train, p_test, method, seed, insecure, root)
    run_prepare(options, as_json=output is Format.JSON)
