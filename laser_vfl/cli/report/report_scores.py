"""The scores of `report`: which of them, on which rows, and the games that they make."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from laser_vfl.cli.report.report_views import ReportSource
from laser_vfl.core.errors import ConfigError
from laser_vfl.core.evaluation.shapley import (
    MAX_ENUMERATED_BLOCKS,
    Game,
    Order,
    Shapley,
    exact_values,
    in_size_order,
    sampled_values,
)
from laser_vfl.core.subsets import has

MIN_FULLY_OBSERVED = 30
"""So many rows with all blocks are enough to compare all subsets on them alone."""

SCORES = {
    "multiclass": ("accuracy",),
    "binary": ("accuracy", "f1", "auc"),
    "regression": ("r2",),
}
"""What can be reported of each task, the usual one first; for all of them, more is better."""

Rows = Literal["fully observed", "available"]
"""The same rows for all subsets, or for each subset those that have its blocks."""


@dataclass(frozen=True)
class Head:
    """How one client's head did, on one choice of rows."""

    client: int
    by_subset: dict[int, float | None]
    constant: float | None
    blocks: int
    """The blocks that occur in its test rows."""

    @property
    def own(self) -> int:
        """The subset of its own block."""
        return 1 << self.client

    def with_others(self, subset: int) -> float | None:
        """The game of the others' blocks; the own one is always there."""
        return self.by_subset.get(subset | self.own)


def chosen_score(views: Sequence[ReportSource], wanted: str | None) -> str:
    """Return the score that all views have."""
    common = [
        name
        for name in ("accuracy", "f1", "auc", "r2")
        if all(name in SCORES[view.task or ""] for view in views)
    ]
    if wanted is not None and wanted in common:
        return wanted
    tasks = ", ".join(f"{view.client} ({view.task})" for view in views)
    if not common:
        raise ConfigError(
            f"there is no score that all have in common: {tasks}",
            hint="report on clients of the same task together",
        )
    if wanted is not None:
        raise ConfigError(f"there is no {wanted} of {tasks}", hint=f"use {' or '.join(common)}")
    return common[0]


def rows_to_use(views: Sequence[ReportSource]) -> Rows:
    """Return which rows are compared: the same for all subsets, if there are enough."""
    full = [view.scores.fully_observed for view in views if view.scores]
    counts = [0 if one is None else one.num_samples for one in full]
    are_alike = len({one.blocks for one in full if one is not None}) == 1
    return "fully observed" if are_alike and min(counts) >= MIN_FULLY_OBSERVED else "available"


def head_of(view: ReportSource, score: str, rows: Rows) -> Head:
    """Return how a view's head did on these rows."""
    scores = view.scores
    assert scores is not None
    if rows == "fully observed" and scores.fully_observed is not None:
        full = scores.fully_observed
        entries, constant, blocks = full.by_subset, full.constant, view.mask(full.blocks)
    else:
        entries, constant = scores.by_subset, scores.constant
        blocks = 0
        for subset, entry in entries.items():
            blocks |= view.mask(subset) if entry.get("num_samples") else 0
    return Head(
        view.me,
        {view.mask(subset): entry.get(score) for subset, entry in entries.items()},
        constant.get(score),
        blocks,
    )


def joint_game(heads: Sequence[Head]) -> Game:
    """Return the game of all blocks: the mean over the heads in a subset of their scores on it.

    Blocks without a head among them predict nothing: the constant prediction is left.
    """

    def value(subset: int) -> float | None:
        present = [head for head in heads if has(subset, head.client)]
        if present:
            return _mean([head.by_subset.get(subset) for head in present])
        return _mean([head.constant for head in heads])

    return value


def shapley_of(players: int, num_blocks: int, game: Game, orders: Sequence[Order]) -> Shapley:
    """Return what each player is worth, exactly where all subsets are scored."""
    if num_blocks <= MAX_ENUMERATED_BLOCKS:
        return exact_values(players, game)
    return sampled_values(players, game, orders)


def orders_of(views: Sequence[ReportSource]) -> list[tuple[int, ...]]:
    """Return the orders in which all views have added blocks; none if they do not agree."""
    told = [view.orders for view in views if view.orders]
    if not told or any(orders != told[0] for orders in told):
        return []
    return [tuple(views[0].roster.index(name) for name in order) for order in told[0]]


def joint_subsets(heads: Sequence[Head]) -> list[int]:
    """Return the subsets that every head in them was scored on."""
    found = {subset for head in heads for subset in head.by_subset}
    return [
        subset
        for subset in sorted(found, key=in_size_order)
        if all(subset in head.by_subset for head in heads if has(subset, head.client))
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
