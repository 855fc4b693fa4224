"""Tables in Markdown, and the notes that belong under them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from laser_vfl.experiments.grid.case import Changes
from laser_vfl.experiments.grid.names import METHODS
from laser_vfl.experiments.report.cells import Cells, Value
from laser_vfl.experiments.runner.results_file import ScoreLine

NOTHING = "–"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], num_left: int = 1) -> list[str]:
    """Return the lines of a table; columns after the first are aligned to the right."""
    ruler = [":--"] * num_left + ["--:"] * (len(header) - num_left)
    return [f"| {' | '.join(row)} |" for row in (header, ruler, *rows)]


def shown(values: Sequence[Value | None], digits: int = 1) -> list[str]:
    """Return a column as text, with the best of it in bold, as it is printed."""
    best = max((round(value.mean, digits) for value in values if value), default=None)
    return [
        NOTHING if value is None else _bold(value, round(value.mean, digits) == best)
        for value in values
    ]


def seeds_of(nums: Iterable[int]) -> str:
    """Return how many seeds there were: 5, or 3 to 5 where it is not the same everywhere."""
    low, high = min(found := list(nums)), max(found)
    return str(low) if low == high else f"{low} to {high}"


def notes_under(cells: Cells, notes: Sequence[str]) -> list[str]:
    """Return the list that stands under tables: what differs in the data, and in the settings."""
    said = [*notes, *_settings_notes([line for cell in cells.values() for line in cell.lines])]
    return ["", *(f"- {note}" for note in said)] if said else []


def _settings_notes(found: Sequence[ScoreLine]) -> list[str]:
    notes = []
    every = set.intersection(*(set(line["changes"].items()) for line in found))
    methods: dict[Changes, set[str]] = defaultdict(set)
    for line in found:
        changes = every if line["variant"] else line["changes"].items()
        methods[tuple(sorted(changes))].add(line["method"])
    for changed in sorted((each for each in methods if each), key=str):
        names = ", ".join(name for key, name in METHODS.items() if key in methods[changed])
        who = "All runs have" if len(methods) == 1 else f"Runs of {names} have"
        settings = ", ".join(f"{name}={value}" for name, value in changed)
        notes.append(f"{who} changed settings: {settings}.")
    hashes: dict[tuple[object, ...], set[str]] = {}
    for line in found:
        alike = (line["method"], line["variant"], line["p_train"], line["num_clients"])
        hashes.setdefault((line["dataset"], *alike), set()).add(line["settings"])
    if any(len(each) > 1 for each in hashes.values()):
        notes.append(
            "Seeds with different settings are mixed: the settings were changed between runs. "
            "Run the same command again, for all seeds."
        )
    engines = sorted({line["engine"] for line in found})
    if engines != ["oracle"]:
        notes.append(f"Engine: {', '.join(engines)}.")
    return notes


def _bold(value: Value, wanted: bool) -> str:
    mean, *rest = str(value).split(" ", 1)
    return " ".join([f"**{mean}**", *rest]) if wanted else str(value)
