"""The settings of a run of an experiment, from YAML: a data set's, then a method's differences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from laser_vfl.config.key_positions import KeyPath, KeyPositions, Position
from laser_vfl.config.loading import load_config
from laser_vfl.config.section import ConfigFile, Section, problem
from laser_vfl.config.shared_sections import ClassWeights, ModelConfig, OptimizerConfig, Scaling
from laser_vfl.config.validation_errors import first_problem
from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.names import METHODS
from laser_vfl.methods.training_settings import TrainingSettings

CONFIGS = Path(__file__).parent / "configs"
CLIENT_DATA = ("class_weights", "scaling")
SECTIONS = ("training", "model", "optimizer", "data")

PTrain = float | Literal["beta"]
Mapping = dict[str, Any]


@dataclass(frozen=True)
class RunSettings:
    """Mappings for a coordinator's `training` and a client's `model`, `optimizer` and `data`."""

    training: Mapping
    model: Mapping
    optimizer: Mapping
    data: Mapping

    @property
    def client_data(self) -> Mapping:
        """What of `data` belongs into a client's file."""
        return {key: value for key, value in self.data.items() if key in CLIENT_DATA}

    @property
    def client_model(self) -> Mapping:
        """`model` for a client's file; it can augment its own block, never whole images."""
        if not self.data.get("augment"):
            return self.model
        options = {**self.model.get("representation_options", {}), "augment": self.data["augment"]}
        return {**self.model, "representation_options": options}


def settings_for(dataset: str, method: str, *, p_train: PTrain, num_clients: int) -> RunSettings:
    """Return the settings of a method on a data set, from the files that come with the package."""
    path = CONFIGS / f"{dataset}.yaml"
    if dataset not in (known := known_datasets()):
        raise ConfigError(
            f'there are no settings for the data set "{dataset}"',
            hint=f"use one of {', '.join(known)}",
        )
    return load_experiment(path).settings(method, p_train=p_train, num_clients=num_clients)


def known_datasets() -> list[str]:
    """Return the data sets that have settings."""
    return sorted(path.stem for path in CONFIGS.glob("*.yaml"))


def load_experiment(path: Path) -> "ExperimentConfig":
    """Read one file of settings."""
    return load_config(path, ExperimentConfig)


class Differences(Section):
    """What is set, or set differently, within each section."""

    training: Mapping = Field(default_factory=dict)
    model: Mapping = Field(default_factory=dict)
    optimizer: Mapping = Field(default_factory=dict)
    data: Mapping = Field(default_factory=dict)


class MethodDifferences(Differences):
    """What differs for a method; within it, by p_train, and last by the number of clients."""

    p_train: dict[str, Differences] = Field(default_factory=dict)
    clients: dict[str, Differences] = Field(default_factory=dict)

    @field_validator("p_train")
    @classmethod
    def _check_probabilities(cls, value: dict[str, Differences]) -> dict[str, Differences]:
        for key in value:
            if key != "beta" and _number(key) is None:
                raise problem(
                    f'"{key}" is no probability', 'write one such as "0.5", or beta', at=(key,)
                )
        return value

    @field_validator("clients")
    @classmethod
    def _check_counts(cls, value: dict[str, Differences]) -> dict[str, Differences]:
        for key in value:
            if not key.isdecimal():
                raise problem(f'"{key}" is no number of clients', 'write "4"', at=(key,))
        return value


class ExperimentConfig(ConfigFile, Differences):
    """One file: the settings of a data set for all methods, and what differs for some."""

    dataset: str
    methods: dict[str, MethodDifferences] = Field(default_factory=dict)

    @field_validator("methods")
    @classmethod
    def _check_methods(cls, value: dict[str, MethodDifferences]) -> dict[str, MethodDifferences]:
        for key in value:
            if key not in METHODS:
                raise problem(
                    f'"{key}" is no method', f"use one of {', '.join(METHODS)}", at=(key,)
                )
        return value

    def settings(self, method: str, *, p_train: PTrain, num_clients: int) -> RunSettings:
        """Merge what holds for a run, and check the result as the daemons would."""
        if method not in METHODS:
            raise ConfigError(
                f'there is no method "{method}"', hint=f"use one of {', '.join(METHODS)}"
            )
        merged: dict[str, Mapping] = {section: {} for section in SECTIONS}
        positions: dict[KeyPath, Position] = {}
        for path, layer in self._layers(method, p_train, num_clients):
            for section in SECTIONS:
                for key, value in getattr(layer, section).items():
                    merged[section][key] = value
                    positions[section, key] = self._key_positions.position((*path, section, key))
        try:
            _Merged.model_validate(merged)
        except ValidationError as error:
            raise first_problem(
                error, _Merged, KeyPositions(self._key_positions.file, positions)
            ) from None
        return RunSettings(**merged)

    def _layers(
        self, method: str, p_train: PTrain, num_clients: int
    ) -> Iterator[tuple[KeyPath, Differences]]:
        yield (), self
        own = self.methods.get(method)
        if own is None:
            return
        yield ("methods", method), own
        for key, layer in own.p_train.items():
            if p_train == (key if key == "beta" else _number(key)):
                yield ("methods", method, "p_train", key), layer
        for key, layer in own.clients.items():
            if num_clients == int(key):
                yield ("methods", method, "clients", key), layer


class DataChoices(Section):
    """What can be chosen about data; what is not a client's is for experiments alone."""

    class_weights: ClassWeights = "none"
    scaling: Scaling = "standard"
    augment: Annotated[int, Field(strict=True, ge=0, le=16)] = 0
    """By how many pixels whole images are moved, and mirrored, before they are cut."""
    labels_at: Annotated[str, Field(strict=True, examples=["bank"])] | None = None
    tasks: Annotated[Literal["split", "first", "second"], Field(examples=["split"])] | None = None
    max_train: Annotated[int, Field(strict=True, ge=1, examples=[3000])] | None = None
    max_test: Annotated[int, Field(strict=True, ge=1, examples=[3000])] | None = None
    missing_together: Annotated[int, Field(strict=True, ge=1)] = 1
    """How many samples miss the same blocks, drawn once for all of them."""

    def labelled(self, clients: Sequence[str]) -> Sequence[str]:
        """Return which of these clients have labels."""
        if self.labels_at is None:
            return clients
        names = [name.strip() for name in self.labels_at.split(",")]
        if unknown := [name for name in names if name not in clients]:
            raise ConfigError(
                f'data.labels_at: there is no "{unknown[0]}"', hint=f"use {', '.join(clients)}"
            )
        return names


class _Merged(Section):
    training: TrainingSettings
    model: ModelConfig
    optimizer: OptimizerConfig
    data: DataChoices


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
