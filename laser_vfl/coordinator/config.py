"""The configuration of a coordinator: the clients of the federation, and how they train."""

import json
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from laser_vfl.config.address import LOOPBACK, Address, MetricsAddress
from laser_vfl.config.field_types import Name, RelativePath
from laser_vfl.config.section import ConfigFile, LogLevel, Section, problem
from laser_vfl.config.shared_sections import TlsFiles
from laser_vfl.core.alignment_purpose import Scheme
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.transport.federation_terms import unfit_setting
from laser_vfl.transport.protocol import MAX_POINTS, MAX_TOTAL_PEOPLE

OnLostClient = Literal["continue", "wait"]

RUN_TERMS = (
    "alignment",
    "alignment_timeout_s",
    "max_people",
    "max_total_people",
    "start",
    "retrain_every_s",
    "quorum",
    "on_lost_client",
    "heartbeat_timeout_s",
    "restart_grace_s",
    "max_slowdown",
)
"""The keys that decide when a run starts, who takes part and how long it waits."""


class StartConfig(Section):
    """When to start without the whole roster."""

    quorum: Annotated[int, Field(strict=True, ge=1, le=64, examples=[2])]
    after_s: Annotated[
        float, Field(strict=True, ge=0, le=604_800, allow_inf_nan=False, examples=[30])
    ]


class CoordinatorConfig(ConfigFile):
    """coordinator.yaml. The order of `clients` is the order of the roster."""

    federation: Annotated[Name, Field(examples=["churn"])]
    listen: Annotated[Address, Field(examples=["127.0.0.1:7000"])]
    state: Annotated[RelativePath, Field(examples=["./coordinator-state"])]
    clients: Annotated[
        list[Name], Field(min_length=1, max_length=64, examples=[["bank", "shop", "telco"]])
    ]
    training: TrainingSettings
    alignment: Scheme = "ecdh"
    alignment_timeout_s: Annotated[
        float, Field(strict=True, gt=0, le=604_800, allow_inf_nan=False, examples=[21_600])
    ] = 21_600.0
    max_people: Annotated[int, Field(strict=True, ge=1, le=MAX_POINTS, examples=[10_000_000])] = (
        10_000_000
    )
    max_total_people: Annotated[
        int, Field(strict=True, ge=1, le=MAX_TOTAL_PEOPLE, examples=[20_000_000])
    ] = 20_000_000
    metrics_listen: MetricsAddress = LOOPBACK
    retrain_every_s: (
        Annotated[
            float,
            Field(strict=True, ge=60, le=31_536_000, allow_inf_nan=False, examples=[86_400]),
        ]
        | None
    ) = None
    start: StartConfig | None = None
    tls: TlsFiles | None = None
    quorum: Annotated[int, Field(strict=True, ge=1, le=64, examples=[2])] = 1
    on_lost_client: OnLostClient = "continue"
    heartbeat_timeout_s: Annotated[
        float, Field(strict=True, gt=0, le=604_800, allow_inf_nan=False, examples=[10])
    ] = 10.0
    restart_grace_s: Annotated[
        float, Field(strict=True, ge=0, le=604_800, allow_inf_nan=False, examples=[60])
    ] = 60.0
    max_slowdown: Annotated[
        float, Field(strict=True, ge=2, le=1_000_000, allow_inf_nan=False, examples=[20])
    ] = 20.0
    log_level: LogLevel = "info"

    def run_terms(self) -> dict[str, str]:
        """Return what decides about runs besides `clients` and `training`: JSON by key."""
        values = self.model_dump(mode="json", include=set(RUN_TERMS))
        return {key: json.dumps(values[key], sort_keys=True) for key in RUN_TERMS}

    @field_validator("clients")
    @classmethod
    def _check_unique(cls, clients: list[str]) -> list[str]:
        for index, name in enumerate(clients):
            if name in clients[:index]:
                raise problem(
                    f'"{name}" is already in the list', "name each client once", at=(index,)
                )
        return clients

    @model_validator(mode="after")
    def _check_training(self) -> "CoordinatorConfig":
        if unfit := unfit_setting(self.training, len(self.clients)):
            raise problem(unfit.why, unfit.hint, at=("training", unfit.setting))
        return self

    @model_validator(mode="after")
    def _check_quorum(self) -> "CoordinatorConfig":
        num_clients = len(self.clients)
        places: list[tuple[int, tuple[str, ...]]] = [(self.quorum, ("quorum",))]
        if self.start:
            places.append((self.start.quorum, ("start", "quorum")))
        for quorum, place in places:
            if quorum > num_clients:
                raise problem(
                    f"expected at most {num_clients}, the number of clients, got {quorum}",
                    f"write an integer from 1 to {num_clients}",
                    at=place,
                )
        return self
