"""The report of an experiment from its results, whichever kind it is."""

from collections.abc import Sequence
from typing import Any

from laser_vfl.experiments.grid.paper import paper_value
from laser_vfl.experiments.report.ablation_report import ablation_report
from laser_vfl.experiments.report.cells import cells_of
from laser_vfl.experiments.report.orderings import contradictions
from laser_vfl.experiments.report.scaling_report import scaling_report
from laser_vfl.experiments.report.score_report import score_report
from laser_vfl.experiments.runner.experiment_record import Record
from laser_vfl.experiments.runner.results_file import ScoreLine

TITLES = {
    "table": "Missing blocks in training and in testing",
    "nonuniform": "Blocks that are missing with probabilities of their own",
}


def report_text(record: Record, lines: Sequence[ScoreLine]) -> str:
    """Return the report in Markdown."""
    cells = cells_of(lines)
    if record.kind in TITLES:
        return score_report(cells, record.notes, TITLES[record.kind])
    if record.kind == "scaling":
        return scaling_report(cells, record.notes)
    return ablation_report(cells, record.notes, record.kind.removeprefix("ablation "))


def report_data(record: Record, lines: Sequence[ScoreLine]) -> dict[str, Any]:
    """Return the same for a program; scores are in percent."""
    cells = cells_of(lines)
    entries = []
    for place, cell in cells.items():
        value, paper = cell.value, paper_value(place)
        entries.append(
            {
                **place._asdict(),
                "metric": cell.lines[0]["metric"],
                "mean": value.mean,
                "std": value.std,
                "num_seeds": cell.num_seeds,
                "num_steps": cell.num_steps,
                "seconds": cell.seconds.mean,
                "seconds_per_step": cell.step_ms.mean / 1e3,
                "paper_mean": paper.mean if paper else None,
                "paper_std": paper.std if paper else None,
            }
        )
    return {
        "kind": record.kind,
        "notes": dict(record.notes),
        "cells": entries,
        "differs_from_paper": [f"{c.dataset}, {c}" for c in contradictions(cells)],
    }
