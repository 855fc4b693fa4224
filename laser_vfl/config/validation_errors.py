"""Turns validation errors into one line: what is wrong, what was expected, and what to do."""

import difflib
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from laser_vfl.config.key_positions import KeyPath, KeyPositions
from laser_vfl.config.section import PROBLEM_TYPE
from laser_vfl.config.text import one_line, shown
from laser_vfl.core.errors import ConfigError


def first_problem(
    error: ValidationError, model: type[BaseModel], positions: KeyPositions
) -> ConfigError:
    """Return the problem that comes first in the file.

    What is written wrongly goes before what is missing, because a misspelt key is both.
    """
    details = error.errors(include_url=False)
    sentences = [_sentence(detail, model) for detail in details]
    first = min(sentences, key=lambda s: (s.is_missing, positions.position(s.path).order))
    return ConfigError(first.message, hint=first.hint, where=positions.where(first.path))


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


def _add_hint(key: str, expected: "Expectation") -> str:
    if expected.section:
        required = [n for n, f in expected.section.model_fields.items() if f.is_required()]
        return f"add {key}: with {', '.join(required)} indented below it"
    return f"add it, for example {key}: {_written(expected.example)}"


def _key_hint(key: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(key.lower(), allowed, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"allowed here: {', '.join(allowed)}"


def _value_hint(expected: "Expectation", got: Any) -> str:
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
    """Return a value as one would write it in YAML."""
    if isinstance(value, list):
        return f"[{', '.join(_written(item) for item in value)}]"
    return one_line(str(value)) if isinstance(value, str) else shown(value)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Expectation:
    """What a field takes: its type without wrappers, its bounds, and a valid example."""

    kind: Any
    bounds: tuple[Any, ...] = ()
    example: Any = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that are allowed, if there are only a few."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def section(self) -> type[BaseModel] | None:
        """The model of a field that is a mapping with known keys."""
        is_model = isinstance(self.kind, type) and issubclass(self.kind, BaseModel)
        return self.kind if is_model else None

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is int or self.kind is float:
            noun = "an integer" if self.kind is int else "a number"
            return f"{noun}{_range(self.bounds)}"
        if get_origin(self.kind) is list:
            return f"a list{_length(self.bounds)}"
        if self.section or self.kind is dict or get_origin(self.kind) is dict:
            return "a mapping"
        if self.kind is bool:
            return "true or false"
        return "text"


def expectation_at(model: type[BaseModel], path: KeyPath) -> Expectation:
    """Return what `model` expects at `path` of a file."""
    found = Expectation(model)
    for part in path:
        if found.section and part in found.section.model_fields:
            found = _of_field(found.section.model_fields[str(part)])
        elif get_origin(found.kind) is list:
            items = found.example if isinstance(found.example, list) else []
            found = _unwrapped(get_args(found.kind)[0], (), items[0] if items else None)
        elif get_origin(found.kind) is dict:
            found = _unwrapped(get_args(found.kind)[1], (), None)
        else:
            return Expectation(Any)
    return found


def _of_field(field: FieldInfo) -> Expectation:
    example = field.examples[0] if field.examples else field.get_default(call_default_factory=True)
    if not field.examples and field.is_required():
        example = None
    return _unwrapped(field.annotation, tuple(field.metadata), example)


def _unwrapped(annotation: Any, bounds: tuple[Any, ...], example: Any) -> Expectation:
    """Strip `Annotated` and `| None`, and collect the bounds and examples that they carry."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        for item in metadata:
            if isinstance(item, FieldInfo):
                bounds += tuple(item.metadata)
                example = item.examples[0] if item.examples else example
            else:
                bounds += (item,)
        return _unwrapped(inner, bounds, example)
    if origin in (Union, types.UnionType):
        members = [arg for arg in get_args(annotation) if arg is not type(None)]
        if len(members) == 1:
            return _unwrapped(members[0], bounds, example)
    return Expectation(annotation, bounds, example)


def _range(bounds: tuple[Any, ...]) -> str:
    lower = next((b for b in bounds if isinstance(b, Ge | Gt)), None)
    upper = next((b for b in bounds if isinstance(b, Le | Lt)), None)
    if isinstance(lower, Ge) and isinstance(upper, Le):
        return f" from {lower.ge} to {upper.le}"
    limits = []
    if lower is not None:
        limits.append(f">= {lower.ge}" if isinstance(lower, Ge) else f"> {lower.gt}")
    if upper is not None:
        limits.append(f"<= {upper.le}" if isinstance(upper, Le) else f"< {upper.lt}")
    return " " + " and ".join(limits) if limits else ""


def _length(bounds: tuple[Any, ...]) -> str:
    least = next((b.min_length for b in bounds if isinstance(b, MinLen)), 0)
    most = next((b.max_length for b in bounds if isinstance(b, MaxLen)), None)
    if most is not None:
        return f" of {least} to {most}"
    return f" of at least {least}" if least else ""
