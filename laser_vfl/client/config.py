"""What a client is told: where it is, what it holds, and how it learns from it."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from laser_vfl.config.address import LOOPBACK, Address, DialAddress, MetricsAddress
from laser_vfl.config.columns import Column, LabelText
from laser_vfl.config.compute import Device, Threads
from laser_vfl.config.learning import ClassWeights, OptimizerConfig, Scaling
from laser_vfl.config.learning import ModelConfig as ModelConfig
from laser_vfl.config.names import Name
from laser_vfl.config.paths import RelativePath
from laser_vfl.config.problems import problem
from laser_vfl.config.section import ConfigFile, LogLevel, Section
from laser_vfl.config.tls import TlsFiles
from laser_vfl.wire.protocol import MAX_POINTS

Task = Literal["auto", "multiclass", "binary", "regression"]
Precision = Literal["float32", "bfloat16"]


class DataConfig(Section):
    """The client's block: its tables, and which of their columns to use."""

    train: Annotated[RelativePath, Field(examples=["bank_train.csv"])]
    test: RelativePath | None = None
    serve: RelativePath | None = None
    id: Annotated[Column, Field(examples=["customer_id"])]
    label: Column | None = None
    features: Annotated[list[Column], Field(min_length=1, examples=[["age"]])] | None = None
    exclude: Annotated[list[Column], Field(examples=[["notes"]])] | None = None
    scaling: Scaling = "standard"
    task: Task = "auto"
    class_weights: ClassWeights = "none"
    positive: LabelText | None = None

    @model_validator(mode="after")
    def _check_columns(self) -> "DataConfig":
        if self.label == self.id:
            raise problem(
                f'"{self.id}" is the id column already', "name another column", at=("label",)
            )
        if self.features is not None and self.exclude is not None:
            raise problem(
                "cannot be used together with features", "keep one of the two", at=("exclude",)
            )
        for index, column in enumerate(self.features or []):
            if column in (self.id, self.label):
                role = "id" if column == self.id else "label"
                raise problem(
                    f'"{column}" is the {role} column and cannot be a feature',
                    "remove it from the list",
                    at=("features", index),
                )
        return self

    @model_validator(mode="after")
    def _check_task(self) -> "DataConfig":
        if self.task == "regression":
            if self.class_weights != "none":
                raise problem(
                    "a regression has no classes", "remove class_weights", at=("class_weights",)
                )
            if self.positive is not None:
                raise problem(
                    "a regression has no positive class", "remove positive", at=("positive",)
                )
        if self.positive is not None and self.label is None:
            raise problem("there is no label", "add label or remove positive", at=("positive",))
        return self


Rate = Annotated[float, Field(strict=True, gt=0, le=1e9, allow_inf_nan=False, examples=[1000])]


class ServingConfig(Section):
    """How predictions are answered, and how much of that each peer may ask for."""

    deadline_s: Annotated[
        float, Field(strict=True, gt=0, le=3600, allow_inf_nan=False, examples=[0.2])
    ] = 1.0
    requests_per_s: Rate = 1000.0
    samples_per_s: Rate = 10_000.0
    batch_requests: Annotated[bool, Field(strict=True)] = True
    align_requests: Annotated[bool, Field(strict=True)] = True
    applications: Annotated[list[Name], Field(examples=[["crm"]])] | None = None
    tokens_file: Annotated[RelativePath, Field(examples=["tokens.txt"])] | None = None


class PrivacyConfig(Section):
    """What is done to representations before they leave this client."""

    clip: (
        Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False, examples=[1.0])]
        | None
    ) = None
    noise: Annotated[
        float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False, examples=[2.0])
    ] = 0.0
    delta: Annotated[float, Field(strict=True, gt=0, lt=1, examples=[0.00001])] = 1e-5

    @model_validator(mode="after")
    def _check_clip(self) -> "PrivacyConfig":
        if self.noise and self.clip is None:
            raise problem(
                "noise means nothing next to rows of any length", "add clip", at=("noise",)
            )
        return self


class ClientConfig(ConfigFile):
    """client.yaml. What must be equal across the federation is the coordinator's, not here."""

    federation: Annotated[Name, Field(examples=["churn"])]
    name: Annotated[Name, Field(examples=["bank"])]
    listen: Annotated[Address, Field(examples=["127.0.0.1:7001"])]
    advertise: DialAddress | None = None
    predict_listen: Annotated[Address, Field(examples=["127.0.0.1:7101"])] = LOOPBACK
    metrics_listen: MetricsAddress = LOOPBACK
    roster: Annotated[list[Name], Field(max_length=64, examples=[["bank", "shop"]])] | None = None
    coordinator: Annotated[DialAddress, Field(examples=["127.0.0.1:7000"])]
    state: Annotated[RelativePath, Field(examples=["./bank-state"])]
    id_secret_file: Annotated[RelativePath, Field(examples=["id.secret"])] | None = None
    data: DataConfig
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    serving: ServingConfig = ServingConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    device: Device = "auto"
    precision: Precision = "float32"
    threads: Threads = "auto"
    representation_dim: (
        Annotated[int, Field(strict=True, ge=1, le=65_536, examples=[32])] | None
    ) = None
    max_people: Annotated[int, Field(strict=True, ge=1, le=MAX_POINTS, examples=[10_000_000])] = (
        10_000_000
    )
    alignments_per_day: Annotated[int, Field(strict=True, ge=1, le=100_000, examples=[100])] = 100
    connect_timeout_s: Annotated[
        float, Field(strict=True, gt=0, le=604_800, allow_inf_nan=False, examples=[60])
    ] = 60.0
    coordinator_timeout_s: Annotated[
        float, Field(strict=True, gt=0, le=604_800, allow_inf_nan=False, examples=[3600])
    ] = 3600.0
    tls: TlsFiles | None = None
    log_level: LogLevel = "info"

    @model_validator(mode="after")
    def _check_reachable(self) -> "ClientConfig":
        if self.listen.is_wildcard and self.advertise is None:
            raise problem(
                f'"{self.listen}" listens on every interface, and peers cannot dial that',
                "add advertise: with the host:port at which they reach this client",
                at=("listen",),
            )
        return self
