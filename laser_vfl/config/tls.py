"""The files that give a daemon its identity, and those of whom it trusts."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from laser_vfl.config.names import Name
from laser_vfl.config.paths import RelativePath
from laser_vfl.config.problems import problem
from laser_vfl.config.section import Section


class TlsFiles(Section):
    """PEM files for mutual TLS: whom to trust, who this daemon is, and the proof of it."""

    ca: Annotated[RelativePath, Field(examples=["ca.pem"])] | None = None
    authorities: (
        Annotated[dict[Name, RelativePath], Field(min_length=1, examples=[{"bank": "bank-ca.pem"}])]
        | None
    ) = None
    cert: Annotated[RelativePath, Field(examples=["bank.pem"])]
    key: Annotated[RelativePath, Field(examples=["bank.key"])]

    @model_validator(mode="after")
    def _check_trust(self) -> Self:
        if self.ca is None and self.authorities is None:
            raise problem(
                "it says of nobody whom to trust",
                "add ca: with the federation's authority, or authorities: with one for each "
                "organisation",
            )
        if self.ca is not None and self.authorities is not None:
            raise problem(
                "cannot be used together with ca", "keep one of the two", at=("authorities",)
            )
        return self
