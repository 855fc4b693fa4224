"""client.yaml: where a client is, its tables and models, what it requires and what it allows."""

from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from laser_vfl.config.address import LOOPBACK, Address, DialAddress, MetricsAddress
from laser_vfl.config.field_types import Column, Device, LabelText, Name, RelativePath, Threads
from laser_vfl.config.section import ConfigFile, LogLevel, Section, problem
from laser_vfl.config.shared_sections import ClassWeights, OptimizerConfig, Scaling, TlsFiles
from laser_vfl.config.shared_sections import ModelConfig as ModelConfig
from laser_vfl.config.text import shown
from laser_vfl.core.alignment_purpose import Scheme
from laser_vfl.core.settings import WirePrecision
from laser_vfl.transport.protocol import MAX_POINTS

Task = Literal["auto", "multiclass", "binary", "regression"]
Precision = Literal["float32", "bfloat16"]


def _iso_date(value: Any) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise problem(f"expected a date, got {shown(value)}", "write it as 2024-12-31") from None


class ColumnConfig(Section):
    """How one column is read, where that is not left to the rules."""

    type: (
        Annotated[
            Literal["number", "boolean", "category", "datetime"], Field(examples=["category"])
        ]
        | None
    ) = None
    max_values: Annotated[int, Field(strict=True, ge=1, le=100_000, examples=[200])] | None = None
    scaling: Scaling | None = None
    format: Annotated[str, Field(strict=True, pattern="%", examples=["%Y%m%d"])] | None = None
    reference: Annotated[str, BeforeValidator(_iso_date)] | None = None

    @model_validator(mode="after")
    def _check_fits(self) -> "ColumnConfig":
        belongs = {
            "max_values": ("category",),
            "scaling": ("number", "boolean"),
            "format": ("datetime",),
            "reference": ("datetime",),
        }
        for key, types in belongs.items():
            if getattr(self, key) is not None and self.type not in types:
                raise problem(
                    f"is for columns with type: {' or '.join(types)}",
                    f"add type: {types[0]}, or remove {key}",
                    at=(key,),
                )
        return self


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
    columns: (
        Annotated[dict[Column, ColumnConfig], Field(examples=[{"dest": {"type": "category"}}])]
        | None
    ) = None
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
        for column in self.columns or {}:
            role = {self.id: "the id column", self.label: "the label"}.get(column)
            if column in (self.exclude or []):
                role = "excluded"
            elif self.features is not None and column not in self.features:
                role = "not among the features"
            if role is not None:
                raise problem(
                    f'"{column}" is {role}', "remove one of the two", at=("columns", column)
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
    memory_mb: Annotated[int, Field(strict=True, ge=64, le=1_000_000, examples=[1000])] = 1000
    batch_requests: Annotated[bool, Field(strict=True)] = True
    align_requests: Annotated[bool, Field(strict=True)] = False
    align_requests_per_day: Annotated[
        int, Field(strict=True, ge=1, le=100_000, examples=[1000])
    ] = 1000
    applications: Annotated[list[Name], Field(examples=[["crm"]])] | None = None
    tokens_file: Annotated[RelativePath, Field(examples=["tokens.txt"])] | None = None

    @property
    def memory_bytes(self) -> int:
        """How much requests may take up that are under way at the same time."""
        return self.memory_mb * 1_000_000


Bound = Annotated[float, Field(strict=True, ge=-1e15, le=1e15, allow_inf_nan=False)]


class LabelPrivacyConfig(Section):
    """How the labels of the training table are randomised, and what they can be."""

    epsilon: Annotated[float, Field(strict=True, ge=0.01, le=20, examples=[2])]
    classes: (
        Annotated[list[LabelText], Field(min_length=2, max_length=10_000, examples=[["no", "yes"]])]
        | None
    ) = None
    bounds: (
        Annotated[list[Bound], Field(min_length=2, max_length=2, examples=[[0, 100]])] | None
    ) = None
    tell_scores: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _check_bounds(self) -> "LabelPrivacyConfig":
        if self.bounds is not None:
            if self.classes is not None:
                raise problem(
                    "a label with classes has no bounds", "keep one of the two", at=("bounds",)
                )
            if self.bounds[0] >= self.bounds[1]:
                raise problem(
                    f"{self.bounds[0]:g} is not below {self.bounds[1]:g}",
                    "write the lowest amount that a label can be, then the highest",
                    at=("bounds",),
                )
        return self


class PrivacyConfig(Section):
    """What is done to representations before they leave this client, and to labels."""

    clip: (
        Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False, examples=[1.0])]
        | None
    ) = None
    noise: Annotated[
        float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False, examples=[2.0])
    ] = 0.0
    delta: Annotated[float, Field(strict=True, gt=0, lt=1, examples=[0.00001])] = 1e-5
    max_epsilon: (
        Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False, examples=[10.0])]
        | None
    ) = None
    labels: LabelPrivacyConfig | None = None

    @model_validator(mode="after")
    def _check_clip(self) -> "PrivacyConfig":
        if self.noise and self.clip is None:
            raise problem(
                "noise means nothing next to rows of any length", "add clip", at=("noise",)
            )
        if self.max_epsilon is not None and not self.noise:
            raise problem(
                "without noise no run keeps to any epsilon",
                "add noise; `laser-vfl epsilon` says how much",
                at=("max_epsilon",),
            )
        return self


class RequireConfig(Section):
    """Settings that protect this client; it joins no run without them."""

    masked_gradients: Annotated[bool, Field(strict=True)] = False
    alignment: Annotated[Scheme, Field(examples=["ecdh"])] | None = None
    max_epochs: Annotated[int, Field(strict=True, ge=1, le=2**31 - 1, examples=[50])] | None = None
    roster: Annotated[list[Name], Field(max_length=64, examples=[["bank", "shop"]])] | None = None
    wire_precision: (
        Annotated[list[WirePrecision], Field(min_length=1, examples=[["float32"]])] | None
    ) = None


class ClientConfig(ConfigFile):
    """client.yaml. What must be equal across the federation is the coordinator's, not here."""

    federation: Annotated[Name, Field(examples=["churn"])]
    name: Annotated[Name, Field(examples=["bank"])]
    listen: Annotated[Address, Field(examples=["127.0.0.1:7001"])]
    advertise: DialAddress | None = None
    predict_listen: Annotated[Address, Field(examples=["127.0.0.1:7101"])] = LOOPBACK
    metrics_listen: MetricsAddress = LOOPBACK
    roster: Annotated[list[Name], Field(max_length=64, examples=[["bank", "shop"]])] | None = None
    dial_local: Annotated[bool, Field(strict=True)] = False
    coordinator: Annotated[DialAddress, Field(examples=["127.0.0.1:7000"])]
    state: Annotated[RelativePath, Field(examples=["./bank-state"])]
    id_secret_file: Annotated[RelativePath, Field(examples=["id.secret"])] | None = None
    data: DataConfig
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    serving: ServingConfig = ServingConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    require: RequireConfig = RequireConfig()
    device: Device = "auto"
    precision: Precision = "float32"
    publish: Literal["auto", "hold"] = "auto"
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

    @property
    def own_address(self) -> str:
        """Where peers reach this client; the port may be 0 until the daemon listens."""
        return str(self.advertise or self.listen)

    @property
    def required_roster(self) -> tuple[str, tuple[str, ...]] | None:
        """The clients with whom this one joins, and the key that names them; None for any."""
        if self.require.roster is not None:
            return "require.roster", tuple(self.require.roster)
        return None if self.roster is None else ("roster", tuple(self.roster))

    @model_validator(mode="after")
    def _check_roster(self) -> "ClientConfig":
        if self.roster is not None and self.require.roster is not None:
            raise problem(
                "cannot be used together with require.roster", "keep one of the two", at=("roster",)
            )
        return self

    @model_validator(mode="after")
    def _check_private_labels(self) -> "ClientConfig":
        labels, data = self.privacy.labels, self.data
        if labels is None:
            return self
        if data.label is None:
            raise problem(
                "there is no label to randomise",
                "add data.label or remove privacy.labels",
                at=("privacy", "labels"),
            )
        if labels.bounds is None:
            if data.task == "regression":
                raise problem(
                    "amounts are randomised between bounds, and there are none",
                    "add bounds: with the lowest and the highest amount",
                    at=("privacy", "labels"),
                )
            _check_classes(data.task, labels.classes)
        elif data.task in ("binary", "multiclass"):
            raise problem(
                f"a {data.task} label has classes and no bounds",
                "add classes: in their place",
                at=("privacy", "labels", "bounds"),
            )
        elif data.class_weights != "none" or data.positive is not None:
            key = "class_weights" if data.positive is None else "positive"
            raise problem("a label with bounds has no classes", f"remove {key}", at=("data", key))
        return self

    @model_validator(mode="after")
    def _check_reachable(self) -> "ClientConfig":
        if self.listen.is_wildcard and self.advertise is None:
            raise problem(
                f'"{self.listen}" listens on every interface, and peers cannot dial that',
                "add advertise: with the host:port at which they reach this client",
                at=("listen",),
            )
        return self


def _check_classes(task: Task, classes: list[str] | None) -> None:
    """Refuse given classes that are too few or too many for a task."""
    if task == "multiclass" and classes is None:
        raise problem(
            "labels are randomised among all classes, and these are not given",
            "add classes: with every class that the label can have",
            at=("privacy", "labels"),
        )
    if task == "binary" and classes is not None and len(classes) != 2:
        raise problem(
            f"a binary label has two classes, and here are {len(classes)}",
            "keep two, or use task: multiclass",
            at=("privacy", "labels", "classes"),
        )
