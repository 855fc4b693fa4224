"""Names of federations and clients, safe in a certificate, a path and a comma-separated list."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from laser_vfl.config.problems import problem
from laser_vfl.config.text import shown

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_RULE = "1 to 64 of a-z, 0-9, _ and -, starting with a letter or digit"


def is_name(text: str) -> bool:
    """Whether a text could name a federation, a client or an application."""
    return _NAME.fullmatch(text) is not None


def _checked_name(value: Any) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    if isinstance(value, int | float):
        hint = f'put it in quotes, as in "{shown(value)}"'
    elif isinstance(value, str) and _NAME.fullmatch(value.lower()):
        hint = f"write it in lower case: {value.lower()}"
    else:
        hint = "write a name such as bank"
    raise problem(f"expected a name ({_RULE}), got {shown(value)}", hint)


Name = Annotated[str, BeforeValidator(_checked_name)]
