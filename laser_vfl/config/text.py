"""Values from a configuration file, shown on one line of an error message."""

import json

_LONGEST = 60


def one_line(text: str) -> str:
    """Return `text` with every character escaped that is not printable."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def shown(value: object) -> str:
    """Return a value as a person would recognise it from the file, shortened if it is long."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int():
            return _number(value)
        case float():
            return repr(value)
        case str():
            return json.dumps(_shortened(one_line(value)), ensure_ascii=False).replace("\\\\", "\\")
        case list():
            return f"a list of {len(value)}" if value else "an empty list"
        case dict():
            return "a mapping"
        case _:
            return one_line(str(value))


def _number(value: int) -> str:
    # Python refuses to print integers of thousands of digits.
    return str(value) if value.bit_length() <= 128 else "an integer of more than 38 digits"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
