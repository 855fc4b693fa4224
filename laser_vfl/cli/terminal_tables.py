"""Tables and lines for a terminal; texts from other parties cannot garble them."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from laser_vfl.config.text import one_line


def new_table(*names: str, title: str | None = None) -> Table:
    """Return a table; the columns of numbers are marked by >."""
    table = Table(title=title)
    for name in names:
        table.add_column(name.removeprefix(">"), justify="right" if name[0] == ">" else "left")
    return table


def add_row(table: Table, *values: Any, style: str = "") -> None:
    """Add a row; markup and control characters are shown as text."""
    texts = ("" if value is None else one_line(str(value)) for value in values)
    table.add_row(*map(Text, texts), style=style)


def say(console: Console, text: str) -> None:
    """Print a line; markup and control characters are shown as text."""
    console.print(Text(one_line(text)), soft_wrap=True)
