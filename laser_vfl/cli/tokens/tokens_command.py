"""`tokens`: the options of the commands that make, show and revoke tokens of applications."""

from pathlib import Path
from typing import Annotated

import typer

from laser_vfl.cli.options import Format, FormatOption

tokens_app = typer.Typer(
    help="Tokens by which applications ask a client, in place of certificates.",
    no_args_is_help=True,
)

Config = Annotated[
    Path, typer.Option("--config", help="The YAML file of the client; it has serving.tokens_file.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The application.")]


@tokens_app.command("add")
def tokens_add(
    name: Name,
    config: Config,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it is good.")] = 365,
    never_expires: Annotated[
        bool, typer.Option("--never-expires", help="Good until it is revoked.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make a token and print it, this once; the file gets its hash."""
    from laser_vfl.cli.tokens.token_changes import run_add

    run_add(config, name, None if never_expires else days, as_json=output is Format.JSON)


@tokens_app.command("list")
def tokens_list(config: Config, output: FormatOption = Format.TEXT) -> None:
    """Show whose tokens there are, and until when they are good."""
    from laser_vfl.cli.tokens.token_changes import run_list

    run_list(config, as_json=output is Format.JSON)


@tokens_app.command("revoke")
def tokens_revoke(
    name: Name,
    config: Config,
    token_id: Annotated[
        str | None, typer.Option("--id", help="Only this one, as `tokens list` shows it.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Take all tokens of an application, or one of them, out of the file."""
    from laser_vfl.cli.tokens.token_changes import run_revoke

    run_revoke(config, name, token_id, as_json=output is Format.JSON)
