"""What can be known to be wrong with a run before any of them starts."""

from typing import Final

import numpy as np

from laser_vfl.config.shared_sections import ModelConfig
from laser_vfl.core.errors import ConfigError
from laser_vfl.data.sets.dataset import ORGANISATIONS
from laser_vfl.experiments.grid.case import Case
from laser_vfl.experiments.grid.case_settings import case_settings
from laser_vfl.experiments.grid.experiment_settings import DataChoices
from laser_vfl.experiments.grid.label_sets import labels_of
from laser_vfl.experiments.grid.names import profile_of
from laser_vfl.models import check_fusion_name, check_representation_name

IMAGES: Final = ("cifar10", "cifar100")
NOT_IN_FILES: Final = ("tasks", "max_train", "max_test", "missing_together")
"""What `data prepare`, and so a real federation, knows nothing of."""


def check_case(case: Case, engine: str) -> None:
    """Refuse a run that cannot be done as it is asked for."""
    settings = case_settings(case)
    chosen = DataChoices.model_validate(settings.data)
    labels_of(case.dataset, np.zeros(1, int), ORGANISATIONS[: case.num_clients], chosen)
    model = ModelConfig.model_validate(settings.model)
    check_representation_name(model.representation)
    check_fusion_name(model.fusion)
    if refusal := profile_of(case.method).refusal(case.num_clients):
        why, hint = refusal
        raise ConfigError(why, hint=hint)
    if chosen.augment and case.dataset not in IMAGES:
        raise ConfigError(
            f"data.augment moves images, and {case.dataset} has none", hint="leave it out"
        )
    if engine == "stacked":
        _check_stacked(case, model.representation, chosen)
    if engine == "grpc":
        _check_grpc(case, settings.data)


def _check_stacked(case: Case, representation: str, chosen: DataChoices) -> None:
    if representation != "mlp" or chosen.tasks == "split":
        what = "two label sets" if chosen.tasks == "split" else f"{representation} models"
        raise ConfigError(
            f"--engine stacked cannot train the {what} of {case.dataset}",
            hint="use --engine oracle",
        )


def _check_grpc(case: Case, data: dict[str, object]) -> None:
    for key in NOT_IN_FILES:
        if key in data:
            raise ConfigError(f"--engine grpc takes no data.{key}", hint="use --engine oracle")
    profile = profile_of(case.method)
    if profile.needs_all_blocks and any(case.p_test):
        # The paper counts a guess of every client; in a federation the active party alone tests.
        raise ConfigError(
            f"--engine grpc scores {profile.title} only where no block is missing in testing",
            hint="use --p-test 0 for it, or --engine oracle",
        )
