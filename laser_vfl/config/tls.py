"""The three files that give a daemon its identity."""

from typing import Annotated

from pydantic import Field

from laser_vfl.config.paths import RelativePath
from laser_vfl.config.section import Section


class TlsFiles(Section):
    """PEM files for mutual TLS: whom to trust, who this daemon is, and the proof of it."""

    ca: Annotated[RelativePath, Field(examples=["ca.pem"])]
    cert: Annotated[RelativePath, Field(examples=["bank.pem"])]
    key: Annotated[RelativePath, Field(examples=["bank.key"])]
