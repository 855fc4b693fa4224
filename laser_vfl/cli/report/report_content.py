"""What `report` finds: every subset's score, what each block is worth, and what is lost without."""

from collections.abc import Sequence
from math import comb
from typing import Any

from laser_vfl.cli.report.report_scores import (
    MIN_FULLY_OBSERVED,
    Head,
    Rows,
    chosen_score,
    head_of,
    joint_game,
    joint_subsets,
    orders_of,
    rows_to_use,
    shapley_of,
)
from laser_vfl.cli.report.report_views import ReportSource, check_together, scored
from laser_vfl.core.evaluation.shapley import MAX_ENUMERATED_BLOCKS, Shapley, Worth, curve
from laser_vfl.core.subsets import clients_in, has, subset_name

LABELS = {"accuracy": "accuracy", "f1": "F1", "auc": "AUC", "r2": "R²"}
"""The scores as people write them."""

MAX_NAMED = 5
"""How many subsets a sentence names."""


def report_of(views: Sequence[ReportSource], wanted_score: str | None = None) -> dict[str, Any]:
    """Return the report on these clients; docs/commands.md has its keys."""
    check_together(views)
    heads_at_hand = scored(views)
    score = chosen_score(heads_at_hand, wanted_score)
    return _Report(views, heads_at_hand, score).content()


class _Report:
    """Combines the views of one or several clients."""

    def __init__(
        self, views: Sequence[ReportSource], heads: Sequence[ReportSource], score: str
    ) -> None:
        self._views, self._head_views, self._score = views, heads, score
        self._roster = views[0].roster
        self._rows = rows_to_use(heads)
        self._heads = self._on(self._rows)
        self._blocks = 0
        for head in self._heads:
            self._blocks |= head.blocks
        self._game = joint_game(self._heads)

    def content(self) -> dict[str, Any]:
        """Return the whole of it."""
        views, names = self._views, self._names
        shapley = self._alone(0) if len(views) == 1 else self._together()
        left_out = [n for n in views[0].heads if n not in [v.client for v in views]]
        unseen = [n for n in self._roster if not has(self._blocks, self._roster.index(n))]
        return {
            "federation": views[0].federation,
            "run": views[0].run,
            "roster": list(self._roster),
            "clients": [view.client for view in views],
            "heads": [view.client for view in self._head_views],
            "heads_left_out": left_out if len(views) > 1 else [],
            "blocks": names(self._blocks),
            "blocks_not_tested": unseen,
            "score": self._score,
            "rows": self._rows,
            "num_samples": self._num_samples(),
            "constant": self._game(0),
            "all_blocks": self._game(self._blocks),
            "shapley": shapley,
            "curve": self._curve(),
            "subsets": self._subsets(),
            "by_head": {
                view.client: self._alone(place) for place, view in enumerate(self._head_views)
            },
            "views": [view.model_dump() for view in views],
        }

    def _together(self) -> dict[str, Any]:
        num_blocks = self._blocks.bit_count()
        orders = orders_of(self._head_views)
        shapley = shapley_of(self._blocks, num_blocks, self._game, orders)
        return self._told(shapley, num_blocks, len(orders), self._rows)

    def _alone(self, place: int) -> dict[str, Any]:
        """Return what each block is worth to one client: the own one before all others."""
        view = self._head_views[place]
        rows = rows_to_use([view])
        head = head_of(view, self._score, rows)
        num_blocks, orders = head.blocks.bit_count(), orders_of([view])
        others = shapley_of(head.blocks & ~head.own, num_blocks, head.with_others, orders)
        alone, constant = head.with_others(0), head.constant
        own = None if alone is None or constant is None else alone - constant
        unknown = [subset | head.own for subset in others.unknown]
        if constant is None:
            unknown.insert(0, 0)
        shapley = Shapley({head.client: Worth(own), **others.worths}, tuple(unknown))
        return {**self._told(shapley, num_blocks, len(orders), rows), "own": view.client}

    def _told(
        self, shapley: Shapley, num_blocks: int, num_orders: int, rows: Rows
    ) -> dict[str, Any]:
        is_exact = num_blocks <= MAX_ENUMERATED_BLOCKS
        return {
            "method": "exact" if is_exact else "sampled",
            "num_orders": None if is_exact else num_orders,
            "rows": rows,
            "values": [
                {
                    "block": self._roster[player],
                    "value": worth.value,
                    "standard_error": worth.standard_error,
                }
                for player, worth in sorted(shapley.worths.items())
            ],
            "unknown": [self._names(subset) for subset in shapley.unknown],
        }

    def _curve(self) -> list[dict[str, Any]]:
        num_blocks, num_heads = self._blocks.bit_count(), len(self._heads)
        values = {subset: self._game(subset) for subset in joint_subsets(self._heads)}
        known = {subset: value for subset, value in values.items() if value is not None}
        return [
            {
                "num_missing": point.num_missing,
                "mean": point.mean,
                "min": point.lowest,
                "max": point.highest,
                "num_subsets": point.num_subsets,
                "num_possible": comb(num_blocks, num_blocks - point.num_missing)
                - comb(num_blocks - num_heads, num_blocks - point.num_missing),
            }
            for point in curve(known, num_blocks)
        ]

    def _subsets(self) -> list[dict[str, Any]]:
        """Return every subset with its scores, the best first."""
        available, full = self._on("available"), self._on("fully observed")
        on_available, on_full = joint_game(available), joint_game(full)
        has_full = self._rows == "fully observed"
        entries = [
            {
                "blocks": self._names(subset),
                "score": (on_full if has_full else on_available)(subset),
                "score_of_available": on_available(subset),
                "num_available": self._num_available(subset),
            }
            for subset in joint_subsets(available)
            if not subset & ~self._blocks
        ]
        return sorted(entries, key=lambda e: (e["score"] is None, -(e["score"] or 0.0)))

    def _num_available(self, subset: int) -> int:
        """Return how many test rows have these blocks, at the client that has most of them."""
        name = subset_name(subset, self._roster)
        counts = [0]
        for view in self._head_views:
            entry = view.scores.by_subset.get(name, {}) if view.scores else {}
            counts.append(int(entry.get("num_samples") or 0))
        return max(counts)

    def _num_samples(self) -> dict[str, int] | None:
        """Return how many rows all subsets are compared on at each head; None if on no such."""
        if self._rows == "available":
            return None
        full = {
            view.client: view.scores and view.scores.fully_observed for view in self._head_views
        }
        return {name: one.num_samples for name, one in full.items() if one}

    def _on(self, rows: Rows) -> list[Head]:
        return [head_of(view, self._score, rows) for view in self._head_views]

    def _names(self, subset: int) -> list[str]:
        return [self._roster[client] for client in clients_in(subset)]


def sentences(report: dict[str, Any]) -> list[str]:
    """Return what has to be said about a report, for people."""
    score, blocks = LABELS[report["score"]], report["blocks"]
    told = []
    if report["rows"] == "fully observed":
        which = f"all {len(blocks)} blocks" if len(blocks) > 1 else f"the block of {blocks[0]}"
        counts = sorted(set(report["num_samples"].values()))
        num = f"{counts[0]:,}" + (f" to {counts[-1]:,}" if len(counts) > 1 else "")
        told.append(f"{score} on the {num} test rows that have {which}")
    else:
        told.append(
            f"{score} of each subset on the test rows that have its blocks, for fewer than "
            f"{MIN_FULLY_OBSERVED} have all; what differs may also be the rows"
        )
    low, high = report["constant"], report["all_blocks"]
    if low is not None and high is not None:
        told.append(f"the best constant prediction reaches {low:.3f}, all blocks {high:.3f}")
    if report["heads_left_out"]:
        names = ", ".join(report["heads_left_out"])
        told.append(f"the heads of {names} are left out: give their --config or --with, too")
    if report["blocks_not_tested"]:
        names = ", ".join(report["blocks_not_tested"])
        told.append(f"no test row here has the blocks of {names}: nothing is said of them")
    return told + _about_shapley(report["shapley"])


def _about_shapley(shapley: dict[str, Any]) -> list[str]:
    told = []
    if shapley.get("own") and len(shapley["values"]) > 1:
        told.append(
            f"the block of {shapley['own']} is worth what it reaches alone beyond the constant, "
            "each other what it adds to that"
        )
    if shapley["method"] == "sampled" and shapley["num_orders"]:
        told.append(f"values are estimates from {shapley['num_orders']} random orders of blocks")
    elif shapley["method"] == "sampled":
        told.append(
            "there are no values: no client has tested random orders of blocks, because each has "
            "ten at most, or an older release has tested this model"
        )
    unknown = [",".join(subset) for subset in shapley["unknown"]]
    if "" in unknown:
        unknown.remove("")
        told.append(
            "the constant prediction has no score: an older release has tested this model, or all "
            "test rows are alike; values that need it are open"
        )
    if unknown:
        named = "; ".join(unknown[:MAX_NAMED])
        more = f" and {len(unknown) - MAX_NAMED} more" if len(unknown) > MAX_NAMED else ""
        told.append(
            f"no score: {named}{more}. No test row has these blocks, or the method has no "
            "predictor for them; values that need it are open"
        )
    return told
