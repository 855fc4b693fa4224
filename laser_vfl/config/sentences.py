"""Validation errors in our own words: what is wrong, and what to do about it."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from laser_vfl.config.expectations import Expectation, expectation_at
from laser_vfl.config.places import KeyPath, Places
from laser_vfl.config.problems import PROBLEM_TYPE
from laser_vfl.config.text import one_line, shown
from laser_vfl.core.errors import ConfigError


def first_problem(error: ValidationError, model: type[BaseModel], places: Places) -> ConfigError:
    """The problem that comes first in the file.

    What is written wrongly goes before what is missing, because a misspelt key is both.
    """
    details = error.errors(include_url=False)
    sentences = [_sentence(detail, model) for detail in details]
    first = min(sentences, key=lambda s: (s.is_missing, places.position(s.path).order))
    return ConfigError(first.message, hint=first.hint, where=places.where(first.path))


@dataclass(frozen=True)
class _Sentence:
    path: KeyPath
    message: str
    hint: str
    is_missing: bool = False


def _sentence(detail: ErrorDetails, model: type[BaseModel]) -> _Sentence:
    path, got = detail["loc"], detail["input"]
    match detail["type"]:
        case "missing":
            hint = _add_hint(str(path[-1]), expectation_at(model, path))
            return _Sentence(path, "this key is missing", hint, is_missing=True)
        case "extra_forbidden":
            section = expectation_at(model, path[:-1]).section or model
            return _Sentence(path, "unknown key", _key_hint(str(path[-1]), section.model_fields))
        case kind if kind == PROBLEM_TYPE:
            context = detail["ctx"]
            return _Sentence((*path, *context["at"]), context["message"], context["hint"])
        case _:
            expected = expectation_at(model, path)
            message = f"expected {expected}, got {shown(got)}"
            return _Sentence(path, message, _value_hint(expected, got))


def _add_hint(key: str, expected: Expectation) -> str:
    if expected.section:
        required = [n for n, f in expected.section.model_fields.items() if f.is_required()]
        return f"add {key}: with {', '.join(required)} indented below it"
    return f"add it, for example {key}: {_written(expected.example)}"


def _key_hint(key: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(key.lower(), allowed, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"allowed here: {', '.join(allowed)}"


def _value_hint(expected: Expectation, got: Any) -> str:
    if expected.choices:
        close = difflib.get_close_matches(str(got).lower(), expected.choices, n=1)
        if close:
            return f"did you mean {close[0]}?"
        return f"write one of them, such as {expected.example}"
    if expected.section:
        keys = ", ".join(expected.section.model_fields)
        return f"write its keys indented below it ({keys}), or leave it out"
    kind = str(expected)
    if kind.startswith("a mapping"):
        return "write key: value lines indented below it, or leave it out"
    if kind.startswith("a list"):
        return f"write a list such as {_written(expected.example or ['a', 'b'])}"
    if kind == "true or false":
        return f"write {_written(expected.example)}"
    if kind == "text":
        if isinstance(got, int | float):
            return f'put it in quotes, as in "{shown(got)}"'
        return f"write text such as {_written(expected.example)}"
    if isinstance(got, str) and _is_number(got):
        return f"write it as a plain number, such as {_written(expected.example)}"
    noun = kind.split(" ")[1] if kind.startswith("an integer") else "number"
    article = "a positive" if "> 0" in kind else "an" if noun == "integer" else "a"
    return f"write {article} {noun} such as {_written(expected.example)}"


def _written(value: Any) -> str:
    """A value as one would write it in YAML."""
    if isinstance(value, list):
        return f"[{', '.join(_written(item) for item in value)}]"
    return one_line(str(value)) if isinstance(value, str) else shown(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
