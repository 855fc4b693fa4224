"""What a federation and boosted trees score, as tables in Markdown."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from statistics import fmean, stdev
from typing import Final

from laser_vfl.experiments.report.markdown import NOTHING, table
from laser_vfl.experiments.trees.trees_run import TreesResult

TITLES: Final = {"auc": "AUC", "r2": "R²"}

Reading = Callable[[TreesResult], float | None]


def trees_report(results: Sequence[TreesResult], notes: Sequence[str]) -> str:
    """Return a section for each table; a cell is the mean over seeds ± the standard deviation."""
    lines = ["# A federation beside boosted trees", ""]
    lines += [
        "Trees are scikit-learn's HistGradientBoosting with its defaults and early stopping. "
        "Pooled ones see all columns, null where a block is missing; nobody in the federation "
        "could train them. A score is a mean over the organisations that have labels, each on "
        "the test rows that it holds.",
        "",
    ]
    for name in dict.fromkeys(result["dataset"] for result in results):
        found = [result for result in results if result["dataset"] == name]
        metric = TITLES[found[0]["metric"]]
        lines += [f"## {name}: {metric}", "", *_table_of_blocks(found), ""]
        lines += [
            "Each organisation alone, on its own rows:",
            "",
            *_table_of_organisations(found),
            "",
        ]
    lines += [f"- {note}" for note in notes]
    return "\n".join(lines) + "\n"


def _table_of_blocks(found: Sequence[TreesResult]) -> list[str]:
    nums = list(found[0]["by_blocks"])
    readings: list[tuple[str, Reading]] = [("Overall", itemgetter("overall"))]
    for num in nums:
        title = "All blocks" if num == nums[-1] else f"{num} block{'s' * (num != '1')}"
        readings.append((title, partial(_by_blocks, num)))
    rows = [
        [f"{p:g}", model, *(_cell(runs, reading) for _, reading in readings)]
        for p, model, runs in _cells(found)
    ]
    return table(["p", "Model", *(title for title, _ in readings)], rows, num_left=2)


def _table_of_organisations(found: Sequence[TreesResult]) -> list[str]:
    with_own = [result for result in found if result["alone"]]
    names = list(with_own[0]["alone"]) if with_own else []
    rows = [
        [f"{p:g}", model, *(_cell(runs, partial(_alone, name)) for name in names)]
        for p, model, runs in _cells(with_own)
    ]
    return table(["p", "Model", *names], rows, num_left=2)


def _by_blocks(num: str, result: TreesResult) -> float | None:
    return result["by_blocks"][num]


def _alone(name: str, result: TreesResult) -> float | None:
    return result["alone"][name]


def _cells(found: Iterable[TreesResult]) -> Iterable[tuple[float, str, list[TreesResult]]]:
    cells: dict[tuple[float, str], list[TreesResult]] = {}
    for result in found:
        cells.setdefault((result["p"], result["model"]), []).append(result)
    return ((p, model, runs) for (p, model), runs in cells.items())


def _cell(runs: Sequence[TreesResult], reading: Reading) -> str:
    scores = [score for score in map(reading, runs) if score is not None]
    if not scores:
        return NOTHING
    spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
    return f"{fmean(scores):.4f}{spread}"
