"""Options that several commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How a result is printed."""

    TEXT = "text"
    JSON = "json"


class Score(StrEnum):
    """By what subsets of blocks are compared."""

    ACCURACY = "accuracy"
    F1 = "f1"
    AUC = "auc"
    R2 = "r2"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]
OwnConfigPath = Annotated[
    Path | None,
    typer.Option("--config", help="The YAML file of a daemon here, to ask it as its owner."),
]
CoordinatorAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The coordinator to ask.")
]
StartTimeout = Annotated[str, typer.Option(help="How long to wait for the start.")]
CaPath = Annotated[Path | None, typer.Option("--ca", help="The authority to trust, for TLS.")]
CertPath = Annotated[Path | None, typer.Option("--cert", help="The certificate to show, for TLS.")]
KeyPath = Annotated[Path | None, typer.Option("--key", help="The key of the certificate.")]
