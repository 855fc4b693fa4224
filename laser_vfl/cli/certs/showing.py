"""`certs show`: whom certificates name and when they end, as a table or as JSON."""

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laser_vfl.core.errors import ConfigError, IdentityError
from laser_vfl.security.certificates import Certificate, read_certificates

NUM_LETTERS = 16
"""Enough of a fingerprint to tell certificates apart in a table."""

PIPE_WIDTH = 400
"""Wide enough that no line of the table is broken where there is no terminal."""


def run_show(files: list[Path], directory: Path | None, *, as_json: bool) -> None:
    """Print what certificates say; end with an error if one has expired."""
    paths = [*files, *(pem_files(directory) if directory else [])]
    if not paths:
        raise ConfigError(
            "no certificate to show", hint="give files, or --dir with a directory that has some"
        )
    now = datetime.now(UTC)
    shown = [facts(each, now) for path in paths for each in read_certificates(path)]
    if as_json:
        print(json.dumps({"certificates": shown}, ensure_ascii=False))
    else:
        _print_table(shown)
    if expired := [each["file"] for each in shown if each["is_expired"]]:
        raise IdentityError(
            "has expired" if len(expired) == 1 else "have expired",
            where=", ".join(expired),
            hint="`laser-vfl certs renew` makes new ones",
        )


def pem_files(directory: Path) -> list[Path]:
    """Return the certificates in a directory, the authority first."""
    if not directory.is_dir():
        raise IdentityError("is no directory", where=str(directory), hint="check --dir")
    return sorted(directory.glob("*.pem"), key=lambda path: (path.name != "ca.pem", path.name))


def facts(certificate: Certificate, now: datetime) -> dict[str, Any]:
    """Return what a certificate says, as JSON has it."""
    identity = certificate.identity
    kind = "authority" if certificate.is_authority else identity.role if identity else "unknown"
    left = certificate.not_after - now
    return {
        "file": str(certificate.path),
        "identity": identity.uri if identity else None,
        "subject": certificate.subject,
        "kind": kind,
        "dns_names": list(certificate.dns_names),
        "not_before": _utc(certificate.not_before),
        "not_after": _utc(certificate.not_after),
        "days_left": math.floor(left / timedelta(days=1)),
        "is_expired": left <= timedelta(0),
        "issuer": certificate.issuer,
        "serial": f"{certificate.serial:x}",
        "fingerprint": certificate.fingerprint,
    }


def _print_table(shown: list[dict[str, Any]]) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    table = Table()
    for name in ("identity", "kind", "from", "until", "days left", "issuer", "fingerprint"):
        table.add_column(name, overflow="fold", justify="right" if name == "days left" else "left")
    for each in shown:
        values = (
            each["identity"] or each["subject"],
            each["kind"],
            each["not_before"][:10],
            each["not_after"][:10],
            "expired" if each["is_expired"] else str(each["days_left"]),
            each["issuer"],
            each["fingerprint"][:NUM_LETTERS],
        )
        table.add_row(*map(Text, values))
    console.print(table)


def _utc(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
