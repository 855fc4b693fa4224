"""Sections that several kinds of configuration file have: models, optimiser, and TLS files."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from laser_vfl.config.field_types import Name, RelativePath
from laser_vfl.config.section import Section, problem

ClassWeights = Literal["none", "balanced"]
Scaling = Literal["standard", "quantile", "none"]
OptimizerName = Literal["sgd", "adam", "adamw"]
LearningRateSchedule = Literal["none", "cosine"]


class ModelConfig(Section):
    """The representation model and the fusion head: built-ins, or `package.module:factory`."""

    representation: Annotated[str, Field(strict=True, min_length=1)] = "mlp"
    hidden: list[Annotated[int, Field(strict=True, ge=1, le=65_536)]] = Field(
        default_factory=lambda: [64, 64]
    )
    fusion: Annotated[str, Field(strict=True, min_length=1)] = "linear"
    representation_options: dict[str, Any] = Field(default_factory=dict)
    fusion_options: dict[str, Any] = Field(default_factory=dict)


class OptimizerConfig(Section):
    """The optimiser of a client and its learning rate."""

    name: OptimizerName = "adam"
    lr: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] = 0.001
    momentum: Annotated[float, Field(strict=True, ge=0, lt=1, examples=[0.9])] = 0.0
    weight_decay: Annotated[
        float, Field(strict=True, ge=0, allow_inf_nan=False, examples=[0.0001])
    ] = 0.0
    schedule: LearningRateSchedule = "none"
    lr_floor: Annotated[float, Field(strict=True, ge=0, le=1, examples=[0.01])] = 0.0

    @model_validator(mode="after")
    def _check_pairs(self) -> "OptimizerConfig":
        if self.momentum and self.name != "sgd":
            raise problem(
                f"{self.name} has no momentum", "remove it or use name: sgd", at=("momentum",)
            )
        if self.lr_floor and self.schedule != "cosine":
            raise problem(
                "only the cosine schedule has a floor",
                "remove it or use schedule: cosine",
                at=("lr_floor",),
            )
        return self


class TlsFiles(Section):
    """PEM files for mutual TLS: trusted authorities, this daemon's certificate, and its key."""

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
                "it names no authority to trust",
                "add ca: with the federation's authority, or authorities: with one for each "
                "organisation",
            )
        if self.ca is not None and self.authorities is not None:
            raise problem(
                "cannot be used together with ca", "keep one of the two", at=("authorities",)
            )
        return self
