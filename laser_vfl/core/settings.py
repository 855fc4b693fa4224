"""What must be equal across a federation: the coordinator states it, every client trains by it."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Preset = Literal["default", "paper"]
Batching = Literal["mixed", "by_pattern"]
Shuffle = Literal["every_epoch", "once"]
TaskSampling = Literal["per_sample", "per_batch"]
LossScale = Literal["normalized", "paper"]
LossDivisor = Literal["batch_size", "rows"]
SubsetWeight = Literal["heads", "blocks"]
LossWeighting = Literal["none", "availability"]
WirePrecision = Literal["float32", "float16", "bfloat16", "int8", "int4"]


MAX_SEED: Final = 2**63 - 1

MAX_PIPELINE: Final = 7
"""How many steps may be under way besides the oldest one. Gradients are as many steps old."""


class AlgorithmSettings(BaseModel):
    """The settings of one training run, every one of them explicit once validated.

    Which methods there are is not known here: see `TrainingSettings` in `laser_vfl/methods`.
    `preset` only changes the defaults of other keys. It is applied while validating, so a dump
    holds what was resolved and validates to an equal object anywhere else.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    representation_dim: Annotated[int, Field(strict=True, ge=1, le=65_536, examples=[32])]
    batch_size: Annotated[int, Field(strict=True, ge=1, le=1_000_000, examples=[128])]
    epochs: Annotated[int, Field(strict=True, ge=1, le=2**31 - 1, examples=[20])]
    seed: Annotated[int, Field(strict=True, ge=0, le=MAX_SEED)] = 0
    preset: Preset = "default"
    batching: Batching = "mixed"
    shuffle: Shuffle = "every_epoch"
    task_sampling: TaskSampling = "per_sample"
    loss_scale: LossScale = "normalized"
    loss_divisor: LossDivisor = "batch_size"
    subset_weight: SubsetWeight = "heads"
    loss_weighting: LossWeighting = "none"
    max_loss_weight: Annotated[
        float, Field(strict=True, ge=1, le=1e6, allow_inf_nan=False, examples=[10])
    ] = 10.0
    drop_probability: Annotated[
        float, Field(strict=True, ge=0, lt=1, allow_inf_nan=False, examples=[0.25])
    ] = 0.25
    distillation_epochs: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1, examples=[20])] = 20
    wire_precision: WirePrecision = "float32"
    max_norm: Annotated[
        float, Field(strict=True, gt=0, le=1e18, allow_inf_nan=False, examples=[1e6])
    ] = 1e6
    masked_gradients: Annotated[bool, Field(strict=True)] = False
    step_timeout_s: Annotated[
        float, Field(strict=True, gt=0, le=604_800, allow_inf_nan=False, examples=[60])
    ] = 60.0
    pipeline: Annotated[int, Field(strict=True, ge=0, le=MAX_PIPELINE, examples=[1])] = 0
    checkpoint_every: Annotated[int, Field(strict=True, ge=1, le=2**31 - 1, examples=[200])] = 200

    @property
    def serving_precision(self) -> str:
        """The type in which representations travel for predictions: never less than eight bits."""
        return "int8" if self.wire_precision == "int4" else self.wire_precision

    @property
    def rounds_rows(self) -> bool:
        """Whether what clients exchange in training travels as small integers."""
        return self.wire_precision in ("int8", "int4")

    @model_validator(mode="before")
    @classmethod
    def _apply_preset(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("preset") == "paper":
            return {**PAPER_PRESET, **value}
        return value


PAPER_PRESET: Final = {
    "batching": "by_pattern",
    "task_sampling": "per_batch",
    "loss_scale": "paper",
    "loss_divisor": "rows",
    "subset_weight": "blocks",
}
"""The defaults under `preset: paper`: training exactly as published."""
