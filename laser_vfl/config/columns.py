"""Columns of a table and values of a label, as a configuration names them."""

from typing import Annotated, Any

from pydantic import BeforeValidator

from laser_vfl.config.problems import problem
from laser_vfl.config.text import shown


def _checked_column(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int | float):
        hint = f'put it in quotes, as in "{shown(value)}"'
    else:
        hint = "write the name as in the first line of the table"
    raise problem(f"expected the name of a column, got {shown(value)}", hint)


def _label_text(value: Any) -> str:
    if isinstance(value, str | int | float) and value != "":
        return value if isinstance(value, str) else shown(value)
    raise problem(
        f"expected one value of the label, got {shown(value)}", "write it as in the table"
    )


Column = Annotated[str, BeforeValidator(_checked_column)]
LabelText = Annotated[str, BeforeValidator(_label_text)]
"""A label as text: 1, 1.0 and true in YAML are "1", "1.0" and "true"."""
