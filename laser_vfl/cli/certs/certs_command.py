"""`certs`: the options of the commands that make, renew and show certificates."""

from pathlib import Path
from typing import Annotated

import typer

from laser_vfl.cli.options import Format, FormatOption

certs_app = typer.Typer(help="Certificates: who is who in a federation.", no_args_is_help=True)

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="Where the authority is: ca.pem and ca.key.")
]
Federation = Annotated[str, typer.Option(help="The federation's name.")]
Days = Annotated[int, typer.Option(min=1, max=397, help="How long it is valid.")]
Coordinator = Annotated[bool, typer.Option("--coordinator", help="For the coordinator.")]
Client = Annotated[str | None, typer.Option(metavar="NAME", help="For this client.")]
Operator = Annotated[
    str | None, typer.Option(metavar="NAME", help="For somebody who runs the coordinator.")
]
Application = Annotated[
    str | None, typer.Option(metavar="NAME", help="For what asks a client for predictions.")
]
Of = Annotated[
    str | None, typer.Option("--of", metavar="CLIENT", help="The client of the application.")
]


@certs_app.command("init")
def certs_init(
    federation: Federation,
    organisation: Annotated[
        str | None,
        typer.Option(metavar="CLIENT", help='Vouch for this client alone, or "coordinator".'),
    ] = None,
    directory: Directory = Path("certs"),
    days: Annotated[int, typer.Option(min=1, max=36_500, help="How long it is valid.")] = 1825,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make an authority: of a federation, or one organisation's own."""
    from laser_vfl.cli.certs.issuing import run_init

    run_init(directory, federation, organisation or "", days, as_json=output is Format.JSON)


@certs_app.command("issue")
def certs_issue(
    directory: Directory = Path("certs"),
    coordinator: Coordinator = False,
    client: Client = None,
    operator: Operator = None,
    application: Application = None,
    of: Of = None,
    everybody: Annotated[
        str | None,
        typer.Option("--all", metavar="NAME,…", help="For the coordinator and these clients."),
    ] = None,
    csr: Annotated[
        Path | None, typer.Option("--csr", metavar="FILE", help="For whom a request names.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to, with --csr; else into --dir.")
    ] = None,
    days: Days = 30,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make a certificate and its key, or sign a request."""
    from laser_vfl.cli.certs.issuing import PartyOptions, run_issue, run_sign

    party = PartyOptions(coordinator, client, operator, application, of, everybody)
    as_json = output is Format.JSON
    if csr is None:
        run_issue(directory, party, out, days, as_json=as_json)
    else:
        run_sign(directory, party, csr, out, days, as_json=as_json)


@certs_app.command("request")
def certs_request(
    federation: Federation,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to put the key and request.")],
    coordinator: Coordinator = False,
    client: Client = None,
    operator: Operator = None,
    application: Application = None,
    of: Of = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make a key that stays here, and a request to be signed elsewhere."""
    from laser_vfl.cli.certs.issuing import PartyOptions, run_request

    party = PartyOptions(coordinator, client, operator, application, of)
    run_request(out, federation, party, as_json=output is Format.JSON)


@certs_app.command("renew")
def certs_renew(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Such as bank; may be left out with --within."),
    ] = None,
    directory: Directory = Path("certs"),
    within: Annotated[
        str | None, typer.Option(metavar="DAYS", help="Only what ends by then, as 10d.")
    ] = None,
    days: Days = 30,
    output: FormatOption = Format.TEXT,
) -> None:
    """Make new keys and certificates with the same names."""
    from laser_vfl.cli.certs.issuing import run_renew

    run_renew(directory, names or [], within, days, as_json=output is Format.JSON)


@certs_app.command("show")
def certs_show(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Certificates in PEM form.")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="All .pem files in it, too.")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Show whom certificates name and when they end."""
    from laser_vfl.cli.certs.showing import run_show

    run_show(files or [], directory, as_json=output is Format.JSON)
