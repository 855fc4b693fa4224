"""What a coordinator is told: who is in the federation, and how all of them train."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from laser_vfl.config.address import LOOPBACK, Address, MetricsAddress
from laser_vfl.config.names import Name
from laser_vfl.config.paths import RelativePath
from laser_vfl.config.problems import problem
from laser_vfl.config.section import ConfigFile, LogLevel, Section
from laser_vfl.config.tls import TlsFiles
from laser_vfl.core.purpose import Scheme
from laser_vfl.core.settings import MAX_COMBINED, TrainingSettings
from laser_vfl.wire.protocol import MAX_POINTS, MAX_TENSOR_BYTES
from laser_vfl.wire.sizes import item_bytes

OnLostClient = Literal["continue", "wait"]


class StartRule(Section):
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
    metrics_listen: MetricsAddress = LOOPBACK
    start: StartRule | None = None
    tls: TlsFiles | None = None
    quorum: Annotated[int, Field(strict=True, ge=1, le=64, examples=[2])] = 1
    on_lost_client: OnLostClient = "continue"
    heartbeat_timeout_s: Annotated[
        float, Field(strict=True, gt=0, le=604_800, allow_inf_nan=False, examples=[10])
    ] = 10.0
    restart_grace_s: Annotated[
        float, Field(strict=True, ge=0, le=604_800, allow_inf_nan=False, examples=[60])
    ] = 60.0
    log_level: LogLevel = "info"

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
    def _check_method(self) -> "CoordinatorConfig":
        method, num_clients = self.training.method, len(self.clients)
        if self.training.masked_gradients and method != "laser":
            raise problem(
                f"gradients are not masked with method: {method}",
                "leave it out, or use method: laser",
                at=("training", "masked_gradients"),
            )
        if method == "combinatorial" and num_clients > MAX_COMBINED:
            raise problem(
                f"{num_clients} clients would have {2**num_clients - 1} predictors",
                f"use another method, or at most {MAX_COMBINED} clients",
                at=("training", "method"),
            )
        if method == "vfedtrans" and num_clients < 2:
            raise problem(
                "vfedtrans learns from pairs of clients, and there is one client",
                "use method: local",
                at=("training", "method"),
            )
        return self

    @model_validator(mode="after")
    def _check_frame_size(self) -> "CoordinatorConfig":
        training = self.training
        width = training.exchanged_width(len(self.clients))
        largest = MAX_TENSOR_BYTES // (width * item_bytes(training))
        if training.batch_size > largest:
            raise problem(
                f"expected at most {largest} with rows {width} wide, got {training.batch_size}",
                "lower it: a frame holds one batch and is limited to 64 MiB",
                at=("training", "batch_size"),
            )
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
