"""One comparison: a federation and boosted trees, trained and scored on the same rows."""

import time
from collections.abc import Mapping
from typing import Any, Final, TypedDict

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from laser_vfl.core.training.learner import OptimizerSettings
from laser_vfl.data.missing import observed_blocks
from laser_vfl.experiments.trees.boosted_trees import BoostedTrees
from laser_vfl.experiments.trees.table_set import TableSet
from laser_vfl.simulation import Simulation

Array = npt.NDArray[Any]
Masks = npt.NDArray[np.bool_]
Tables = Mapping[str, pl.DataFrame]

FEDERATION: Final = "federation"
POOLED: Final = "trees, all columns pooled"
OWN: Final = "trees, own block"
MODELS: Final = (FEDERATION, POOLED, OWN)

MIN_ROWS: Final = 50
"""Fewer rows have no score."""

MODEL: Final[Mapping[str, Any]] = {
    "representation": "tabular",
    "fusion": "mlp",
    "fusion_options": {"dropout": 0.1, "hidden": [256, 256]},
}
TRAINING: Final[Mapping[str, Any]] = {"representation_dim": 64, "batch_size": 128}
OPTIMIZER: Final = OptimizerSettings("adamw", lr=0.001, weight_decay=0.01, schedule="cosine")
"""The same for all tables: nothing here is tuned for one of them."""


class TreesResult(TypedDict):
    """What a model scores on test rows, a mean over the organisations that have labels."""

    dataset: str
    p: float
    seed: int
    model: str
    metric: str
    overall: float | None
    by_blocks: dict[str, float | None]
    """By how many blocks a row has."""
    alone: dict[str, float | None]
    """By organisation: from its own block, on its own rows."""
    seconds: float


class Comparison:
    """A table with blocks missing, and what is trained on it."""

    def __init__(self, table: TableSet, p: float, seed: int, epochs: int) -> None:
        self._table, self._p, self._seed, self._epochs = table, p, seed, epochs
        self._train, self._train_seen = self._part(~table.is_test, "train")
        self._test, self._test_seen = self._part(table.is_test, "test")
        self._train_targets = table.targets[~table.is_test]
        self._test_targets = table.targets[table.is_test]

    def results(self) -> list[TreesResult]:
        """Train everything and score it."""
        torch.set_num_threads(1)
        return [self._federation(), self._pooled_trees(), self._own_trees()]

    def _federation(self) -> TreesResult:
        started = time.perf_counter()
        federation = Simulation(
            **MODEL,
            task=self._table.task,
            optimizer=OPTIMIZER,
            **TRAINING,
            epochs=self._epochs,
            seed=self._seed,
        )
        labels = dict.fromkeys(self._table.labels_at, self._train_targets)
        federation.fit(self._train, labels)
        predict = federation.classes if self._table.task == "regression" else federation.decisions
        together = {name: values for name, (values, _) in predict(self._test).items()}
        alone = {}
        for name in self._table.labels_at:
            nobody_else = {
                other: block if other == name else block.clear(len(block))
                for other, block in self._test.items()
            }
            alone[name] = predict(nobody_else)[name][0]
        return self._scored(FEDERATION, together, alone, started)

    def _pooled_trees(self) -> TreesResult:
        started = time.perf_counter()
        trees = BoostedTrees(self._table.task, self._seed)
        has_any = np.asarray(self._train_seen.any(axis=1))
        trees.fit(_side_by_side(self._train).filter(has_any), self._train_targets[has_any])
        predicted = trees.predict(_side_by_side(self._test))
        everybody = dict.fromkeys(self._table.labels_at, predicted)
        return self._scored(POOLED, everybody, {}, started)

    def _own_trees(self) -> TreesResult:
        started = time.perf_counter()
        own = {}
        for name in self._table.labels_at:
            held = self._train_seen[:, self._place(name)]
            trees = BoostedTrees(self._table.task, self._seed)
            trees.fit(self._train[name].filter(held), self._train_targets[held])
            own[name] = trees.predict(self._test[name])
        return self._scored(OWN, own, own, started)

    def _scored(
        self,
        model: str,
        together: Mapping[str, Array],
        alone: Mapping[str, Array],
        started: float,
    ) -> TreesResult:
        num_blocks = self._test_seen.sum(axis=1)
        return TreesResult(
            dataset=self._table.name,
            p=self._p,
            seed=self._seed,
            model=model,
            metric=self._table.metric,
            overall=self._mean(together, np.ones(len(num_blocks), dtype=bool)),
            by_blocks={
                str(num): self._mean(together, num_blocks == num)
                for num in range(1, len(self._table.blocks) + 1)
            },
            alone={
                name: self._score(values, self._test_seen[:, self._place(name)])
                for name, values in alone.items()
            },
            seconds=round(time.perf_counter() - started, 3),
        )

    def _mean(self, predicted: Mapping[str, Array], rows: Masks) -> float | None:
        scores = [
            self._score(values, rows & self._test_seen[:, self._place(name)])
            for name, values in predicted.items()
        ]
        known = [score for score in scores if score is not None]
        return float(np.mean(known)) if known else None

    def _score(self, values: Array, rows: Masks) -> float | None:
        if np.count_nonzero(rows) < MIN_ROWS:
            return None
        return self._table.score(values[rows], self._test_targets[rows])

    def _part(self, chosen: Masks, part: Any) -> tuple[Tables, Masks]:
        """Return the blocks of some rows, null where one is missing, and which are there."""
        blocks = {name: block.filter(chosen) for name, block in self._table.blocks.items()}
        drawn = observed_blocks(
            int(np.count_nonzero(chosen)), len(blocks), self._p, seed=self._seed, table=part
        )
        shown, seen = {}, []
        for (name, block), there in zip(blocks.items(), drawn.T, strict=True):
            is_there = pl.Series(there)
            shown[name] = block.select(pl.when(is_there).then(pl.all()))
            known = shown[name].select(~pl.all_horizontal(pl.all().is_null()))
            seen.append(known.to_series().to_numpy())
        return shown, np.stack(seen, axis=1)

    def _place(self, name: str) -> int:
        return list(self._table.blocks).index(name)


def _side_by_side(blocks: Tables) -> pl.DataFrame:
    return pl.concat(
        [block.select(pl.all().name.prefix(f"{name}.")) for name, block in blocks.items()],
        how="horizontal",
    )
