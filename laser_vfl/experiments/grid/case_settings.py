"""The settings of one run: its data set's YAML with what is changed in it, checked."""

from dataclasses import asdict
from functools import lru_cache
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from laser_vfl.config.key_positions import KeyPositions
from laser_vfl.config.shared_sections import ModelConfig, OptimizerConfig
from laser_vfl.config.validation_errors import first_problem
from laser_vfl.core.errors import ConfigError
from laser_vfl.experiments.grid.case import Case, PMiss, hash_of
from laser_vfl.experiments.grid.experiment_settings import (
    SECTIONS,
    DataChoices,
    RunSettings,
    settings_for,
)
from laser_vfl.methods.training_settings import TrainingSettings

CHECKED: Final[dict[str, type[BaseModel]]] = {
    "training": TrainingSettings,
    "model": ModelConfig,
    "optimizer": OptimizerConfig,
    "data": DataChoices,
}


ASKED_FOR: Final = {"training.method": "--methods", "training.seed": "--seeds"}


def case_settings(case: Case) -> RunSettings:
    """Return what a run is to be trained with; the seed is the case's own."""
    found = _settings(case.dataset, case.method, case.p_train, case.num_clients)
    merged: dict[str, dict[str, Any]] = {name: dict(found[name]) for name in SECTIONS}
    for name, value in case.changes:
        section, _, key = name.partition(".")
        if name in ASKED_FOR:
            raise ConfigError(f"--set: {name} has an option", hint=f"use {ASKED_FOR[name]}")
        if section not in merged or (section == "data" and key not in DataChoices.model_fields):
            raise ConfigError(
                f"--set: there is no {name}",
                hint="use training.…, model.…, optimizer.…, "
                + ", ".join(f"data.{key}" for key in DataChoices.model_fields),
            )
        merged[section] = _changed(merged[section], key, value)
    for section, model in CHECKED.items():
        try:
            model.model_validate(merged[section])
        except ValidationError as error:
            problem = first_problem(error, model, KeyPositions())
            where = f"--set {section}.{problem.where}".removesuffix(".")
            raise ConfigError(problem.message, hint=problem.hint, where=where) from None
    return RunSettings(**merged)


def _changed(settings: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return settings with one of them changed, which may be within another."""
    key, _, rest = name.partition(".")
    inner = settings.get(key, {})
    if rest and isinstance(inner, dict):
        return settings | {key: _changed(inner, rest, value)}
    return settings | {name: value}


def settings_hash(case: Case) -> str:
    """Return the hash of a run's settings, which is kept beside its scores."""
    return hash_of(asdict(case_settings(case)))


@lru_cache(1024)
def _settings(dataset: str, method: str, p_train: PMiss, num_clients: int) -> dict[str, Any]:
    return asdict(settings_for(dataset, method, p_train=p_train, num_clients=num_clients))
