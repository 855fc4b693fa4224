"""The table of `align`: how many samples have which pattern of blocks."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laser_vfl.cli.terminal_tables import say
from laser_vfl.config.text import one_line

MAX_PATTERNS = 30
MAX_NAMES = 8
"""How many names a pattern is spelled out with when clients do not fit side by side."""

COUNTS_WIDTH = len("│ 1,000,000 │ 100.0% │ held here │")


def print_overlaps(found: dict[str, Any], federation: str, console: Console) -> None:
    """Print what `operations.align` has found."""
    client, members = found["client"], found["members"]
    how = f"aligned by {found['scheme']} in {found['seconds']:.1f} s"
    say(console, f"{client} of federation {federation}: {how}")
    say(console, f"took part: {', '.join(members)}")
    if found["absent"]:
        say(console, f"absent: {', '.join(found['absent'])}")
    tables = {name: table for name, table in found["tables"].items() if table["num_samples"]}
    for name, table in tables.items():
        _print_table(name, table, client, members, console)
    if not tables:
        say(console, "no table has a sample")


def _print_table(
    name: str, table: dict[str, Any], client: str, members: Sequence[str], console: Console
) -> None:
    shown = table["patterns"][:MAX_PATTERNS]
    say(console, "")
    say(console, name)
    console.print(_patterns(shown, client, members, console.width))
    num_more = len(table["patterns"]) - len(shown)
    if num_more:
        num_left = table["num_samples"] - sum(pattern["num_samples"] for pattern in shown)
        share = f"{num_left / table['num_samples']:.1%}"
        text = f"{num_more:,} rarer patterns with {num_left:,} samples ({share}) are left out"
        say(console, f"{text}; --format json has them")
    num_rows, num_shared = table["num_rows"], table["num_shared"]
    share = f" ({num_shared / num_rows:.1%})" if num_rows else ""
    say(console, f"{client} has {num_rows:,} rows; others hold {num_shared:,} of them too{share}")
    missing = f"{table['missing_share']:.1%} of their blocks are missing"
    say(console, f"{table['num_samples']:,} samples altogether; {missing}")


def _patterns(
    patterns: Sequence[dict[str, Any]], client: str, members: Sequence[str], width: int
) -> Table:
    """Return a table with a column for each client, or with names if that is too wide."""
    fits = sum(len(name) + 3 for name in members) + COUNTS_WIDTH <= width
    table = Table()
    for name in members if fits else ["blocks"]:
        table.add_column(Text(one_line(name)), justify="center" if fits else "left")
    for name in ("samples", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("held here")
    for pattern in patterns:
        blocks = pattern["blocks"]
        held = client in blocks
        marks = ["●" if name in blocks else "" for name in members]
        cells = marks if fits else [_spelled(blocks, members)]
        cells += [f"{pattern['num_samples']:,}", f"{pattern['share']:.1%}", "yes" if held else ""]
        table.add_row(*(Text(one_line(cell)) for cell in cells), style="bold" if held else "")
    return table


def _spelled(blocks: Sequence[str], members: Sequence[str]) -> str:
    """Return the names of a pattern, or of what it lacks if those are fewer."""
    lacking = [name for name in members if name not in blocks]
    if not lacking:
        return f"all {len(members)}"
    if len(lacking) < len(blocks) and len(blocks) > 2:
        return f"all but {_listed(lacking)}"
    return _listed(blocks)


def _listed(names: Sequence[str]) -> str:
    if len(names) <= MAX_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: MAX_NAMES - 1])} and {len(names) - MAX_NAMES + 1} more"
