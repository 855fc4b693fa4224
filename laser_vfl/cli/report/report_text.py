"""The tables of `report`, on a terminal and in Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from laser_vfl.cli.report.report_content import LABELS, sentences
from laser_vfl.cli.terminal_tables import add_row, new_table, say

MAX_SUBSETS = 31
"""How many a person is shown: all of five blocks."""

MAX_HEADS = 8
"""How many columns of heads a terminal has room for."""


@dataclass(frozen=True)
class Sheet:
    """A table for a terminal or for Markdown; columns of numbers are marked by >."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: Sequence[str] = ()


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print a report for a person."""
    say(console, f"federation {report['federation']}, {heading(report)}")
    for sentence in sentences(report):
        say(console, sentence)
    for sheet in sheets(report):
        shown = sheet.rows[:MAX_SUBSETS]
        table = new_table(*sheet.columns, title=sheet.title)
        for cells in shown:
            add_row(table, *cells)
        if sheet.total:
            add_row(table, *sheet.total, style="bold")
        say(console, "")
        console.print(table)
        if len(shown) < len(sheet.rows):
            say(console, f"{len(sheet.rows) - len(shown):,} more; --format json has them")


def markdown(report: dict[str, Any], picture: str) -> str:
    """Return a report as a Markdown page with its picture."""
    lines = [
        f"# What each block is worth: {report['federation']}",
        "",
        f"Training {heading(report)}.",
        "",
    ]
    lines += [f"- {sentence}" for sentence in sentences(report)]
    lines += ["", f"![The curve, the values and the subsets]({picture})"]
    for sheet in sheets(report):
        names = [column.removeprefix(">") for column in sheet.columns]
        marks = ["---:" if column[0] == ">" else "---" for column in sheet.columns]
        total = [[f"**{cell}**" if cell else "" for cell in sheet.total]] if sheet.total else []
        lines += ["", f"## {sheet.title}", ""]
        lines += [f"| {' | '.join(cells)} |" for cells in [names, marks, *sheet.rows, *total]]
    return "\n".join([*lines, ""])


def heading(report: dict[str, Any]) -> str:
    """Return the first line: what the report is about, and whose scores it has."""
    told = report["clients"]
    by = f"as {told[0]} sees it" if len(told) == 1 else f"by the heads of {_and(report['heads'])}"
    return f"run {report['run']}, {by}"


def sheets(report: dict[str, Any]) -> list[Sheet]:
    """Return all tables."""
    found = [_values(report), _curve(report), _subsets(report)]
    if len(report["by_head"]) > 1 and len(report["by_head"]) <= MAX_HEADS:
        found.insert(1, _by_head(report))
    return found


def label_of(report: dict[str, Any]) -> str:
    """Return the score as people write it."""
    return LABELS[report["score"]]


def curve_title(report: dict[str, Any]) -> str:
    """Return what the curve is called."""
    label = label_of(report)
    return f"{label[0].upper()}{label[1:]} when blocks are missing"


def _values(report: dict[str, Any]) -> Sheet:
    shapley, own = report["shapley"], report["shapley"].get("own")
    rows = [
        [
            f"{entry['block']} (own)" if entry["block"] == own else entry["block"],
            worth_text(entry),
        ]
        for entry in by_worth(shapley["values"])
    ]
    low, high = report["constant"], report["all_blocks"]
    total = ["all blocks"]
    total.append("unknown" if low is None or high is None else _signed(high - low))
    return Sheet("What each block is worth", ["block", ">Shapley value"], rows, total)


def _by_head(report: dict[str, Any]) -> Sheet:
    """Return what each block is worth to each head: the own one before all others."""
    heads = report["by_head"]
    worths = {
        head: {entry["block"]: worth_text(entry) for entry in told["values"]}
        for head, told in heads.items()
    }
    rows = [
        [block, *(worths[head].get(block, "unknown") for head in heads)]
        for block in report["blocks"]
    ]
    columns = ["block", *(f">to {head}" for head in heads)]
    return Sheet("What each block is worth to each head", columns, rows)


def _curve(report: dict[str, Any]) -> Sheet:
    rows = [
        [
            str(point["num_missing"]),
            *(f"{point[name]:.3f}" for name in ("mean", "min", "max")),
            f"{point['num_subsets']:,} of {point['num_possible']:,}",
        ]
        for point in report["curve"]
    ]
    columns = [">blocks missing", f">mean {label_of(report)}", ">lowest", ">highest", ">subsets"]
    return Sheet(curve_title(report), columns, rows)


def _subsets(report: dict[str, Any]) -> Sheet:
    is_paired = report["rows"] == "fully observed"
    columns = ["blocks", f">{label_of(report)}"]
    columns += [">of rows that have these", ">such rows"] if is_paired else [">test rows"]
    rows = []
    for entry in report["subsets"]:
        cells = [", ".join(entry["blocks"]), _number(entry["score"])]
        cells += [_number(entry["score_of_available"])] if is_paired else []
        rows.append([*cells, f"{entry['num_available']:,}"])
    return Sheet("Every subset of blocks, the best first", columns, rows)


def by_worth(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return values with the highest first, and what is not known last."""
    return sorted(values, key=lambda e: (e["value"] is None, -(e["value"] or 0.0)))


def worth_text(entry: dict[str, Any]) -> str:
    """Return a value with its standard error, if it has one."""
    if entry["value"] is None:
        return "unknown"
    error = entry["standard_error"]
    return _signed(entry["value"]) + (f" ± {error:.3f}" if error is not None else "")


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # without it, there would be a -0.000


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _and(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
