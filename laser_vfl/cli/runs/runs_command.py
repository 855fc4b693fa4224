"""`runs`: the options of the commands about runs."""

from pathlib import Path
from typing import Annotated

import typer

from laser_vfl.cli.options import (
    CaPath,
    CertPath,
    CoordinatorAddress,
    Format,
    FormatOption,
    KeyPath,
    OwnConfigPath,
    StartTimeout,
)

runs_app = typer.Typer(
    help="Runs: list them, and approve, reject, cancel or publish one.", no_args_is_help=True
)

Timeout = Annotated[str, typer.Option(help="How long to wait until it is served.")]
RequestingClient = Annotated[
    str, typer.Argument(metavar="CLIENT", help="The client that asks for the run.")
]


@runs_app.command("list")
def runs_list(
    config: OwnConfigPath = None,
    coordinator: CoordinatorAddress = None,
    output: FormatOption = Format.TEXT,
    ca: CaPath = None,
    cert: CertPath = None,
    key: KeyPath = None,
) -> None:
    """Show the runs of a federation, or of a client: which is served, and which is held back."""
    from laser_vfl.cli.runs.run_listing import run_list

    run_list(coordinator, config, (ca, cert, key), as_json=output is Format.JSON)


@runs_app.command("approve")
def runs_approve(
    client: RequestingClient,
    config: OwnConfigPath = None,
    coordinator: CoordinatorAddress = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="The new run's seed; drawn if left out.")
    ] = None,
    timeout: StartTimeout = "60s",
    output: FormatOption = Format.TEXT,
    ca: CaPath = None,
    cert: CertPath = None,
    key: KeyPath = None,
) -> None:
    """Let the run start that a client asks for."""
    from laser_vfl.cli.runs.approving import run_approve

    files = (ca, cert, key)
    run_approve(client, coordinator, config, seed, timeout, files, as_json=output is Format.JSON)


@runs_app.command("reject")
def runs_reject(
    client: RequestingClient,
    config: OwnConfigPath = None,
    coordinator: CoordinatorAddress = None,
    output: FormatOption = Format.TEXT,
    ca: CaPath = None,
    cert: CertPath = None,
    key: KeyPath = None,
) -> None:
    """Tell a client that the run that it asks for does not start."""
    from laser_vfl.cli.runs.approving import run_reject

    run_reject(client, coordinator, config, (ca, cert, key), as_json=output is Format.JSON)


@runs_app.command("cancel")
def runs_cancel(
    config: OwnConfigPath = None,
    coordinator: CoordinatorAddress = None,
    output: FormatOption = Format.TEXT,
    ca: CaPath = None,
    cert: CertPath = None,
    key: KeyPath = None,
) -> None:
    """Take back the next run, also while it is aligned; one that trains goes on."""
    from laser_vfl.cli.runs.approving import run_cancel

    run_cancel(coordinator, config, (ca, cert, key), as_json=output is Format.JSON)


@runs_app.command("publish")
def runs_publish(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run that is held back.")],
    config: Annotated[Path, typer.Option("--config", help="The YAML file of the client.")],
    timeout: Timeout = "10s",
    output: FormatOption = Format.TEXT,
) -> None:
    """Publish a run that this client holds back; it is served when all others have, too."""
    from laser_vfl.cli.runs.publishing import run_publish

    run_publish(run, config, timeout, as_json=output is Format.JSON)
