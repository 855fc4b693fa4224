"""The engines `oracle` and `stacked`: one process trains a federation once and scores it often."""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.core.training.learner import OptimizerSettings
from laser_vfl.data.missing import PMiss, observed_blocks
from laser_vfl.data.sets import DataSet, load_set
from laser_vfl.data.sets.dataset import ORGANISATIONS
from laser_vfl.data.sets.image_cuts import shifted_blocks
from laser_vfl.experiments.engines.scoring import paper_score
from laser_vfl.experiments.engines.stacked_oracle import Diverged, StackedOracle
from laser_vfl.experiments.grid.case import Case, Result
from laser_vfl.experiments.grid.case_settings import case_settings
from laser_vfl.experiments.grid.experiment_settings import DataChoices
from laser_vfl.experiments.grid.label_sets import labels_of
from laser_vfl.experiments.grid.names import profile_of
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.simulation import Simulation

Array = npt.NDArray[Any]


class Stacked(Simulation):
    """Trains all clients' models at once."""

    trainer = StackedOracle


def run_case(case: Case, data: Path | None = None) -> list[Result]:
    """Train a federation and score it for every probability that test blocks are missing."""
    return _run(case, data, Simulation, "oracle")


def run_case_stacked(case: Case, data: Path | None = None) -> list[Result]:
    """Do the same with all clients' models at once, unless one of them diverges."""
    try:
        return _run(case, data, Stacked, "stacked")
    except Diverged:
        return _run(case, data, Simulation, "stacked")


def _run(case: Case, data: Path | None, kind: type[Simulation], engine: str) -> list[Result]:
    torch.set_num_threads(1)
    settings = case_settings(case)
    chosen = DataChoices.model_validate(settings.data)
    dataset = _load(case.dataset, data).reduced(chosen.max_train, chosen.max_test)
    roster = ORGANISATIONS[: case.num_clients]
    blocks = dataset.blocks(case.num_clients)
    method = profile_of(case.method)
    training = {**settings.training, "method": method.name, "seed": case.seed}
    federation = kind(
        **settings.model,
        task=dataset.task,
        **settings.client_data,
        optimizer=OptimizerSettings(**settings.optimizer),
        **TrainingSettings.model_validate(training).model_dump(),
    )
    seen = observed_blocks(
        len(dataset.train),
        case.num_clients,
        case.p_train,
        seed=case.seed,
        table="train",
        together=chosen.missing_together,
    )
    shown = _shown(roster, blocks.train, seen)
    labels = labels_of(dataset.name, dataset.train.labels, roster, chosen)
    started = time.perf_counter()
    federation.fit(
        shown,
        labels,
        _shifting(dataset, case, chosen.augment, roster, seen) if chosen.augment else None,
    )
    seconds = time.perf_counter() - started
    truth = labels_of(dataset.name, dataset.test.labels, roster, chosen)
    num_steps = federation.oracle.num_steps
    results = []
    for p_test in case.p_test:
        score, by_client = _scored(federation, dataset, case, p_test, blocks.test, truth, chosen)
        results.append(
            Result(
                dataset=case.dataset,
                method=case.method,
                variant=case.variant,
                p_train=case.p_train,
                p_test=p_test,
                seed=case.seed,
                num_clients=case.num_clients,
                metric=dataset.metric,
                score=score,
                by_client=by_client,
                num_steps=num_steps,
                seconds=round(seconds, 3),
                seconds_per_step=round(seconds / num_steps, 6),
                engine=engine,
            )
        )
    return results


def _shifting(
    dataset: DataSet,
    case: Case,
    padding: int,
    roster: tuple[str, ...],
    seen: npt.NDArray[np.bool_],
) -> Callable[[int], dict[str, Array]]:
    """Return what makes the blocks of an epoch from images that are moved and mirrored."""

    def blocks_of(epoch: int) -> dict[str, Array]:
        moved = shifted_blocks(dataset, case.num_clients, padding, seed=case.seed, epoch=epoch)
        return _shown(roster, moved, seen)

    return blocks_of


def _scored(
    federation: Simulation,
    dataset: DataSet,
    case: Case,
    p_test: PMiss,
    test: list[npt.NDArray[np.float32]],
    truth: Mapping[str, Array],
    chosen: DataChoices,
) -> tuple[float, dict[str, float | None]]:
    """Score what the clients predict; ties and guesses are drawn from the case's seed."""
    roster = federation.roster
    seen = observed_blocks(
        len(test[0]),
        len(roster),
        p_test,
        seed=case.seed,
        table="test",
        together=chosen.missing_together,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(case.seed)
        predicted = federation.classes(_shown(roster, test, seen))
        return paper_score(federation.settings.profile, dataset, roster, predicted, seen, truth)


def _shown(
    roster: tuple[str, ...], blocks: list[npt.NDArray[np.float32]], seen: npt.NDArray[np.bool_]
) -> dict[str, Array]:
    """Return each client's block, NaN where it does not have a sample."""
    shown = {}
    for k, (name, block) in enumerate(zip(roster, blocks, strict=True)):
        shown[name] = block.copy()
        shown[name][~seen[:, k]] = np.nan
    return shown


@lru_cache(1)
def _load(name: str, data: Path | None) -> DataSet:
    return load_set(name, data)
