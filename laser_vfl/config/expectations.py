"""What a field of a configuration expects, read off its type and put in words."""

import types
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from laser_vfl.config.places import KeyPath


@dataclass(frozen=True)
class Expectation:
    """A field's type without its wrapping, its bounds, and a value that would do."""

    kind: Any
    bounds: tuple[Any, ...] = ()
    example: Any = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a field that knows only a few."""
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
    """What stands at `path` in a file that `model` describes."""
    found = Expectation(model)
    for part in path:
        if found.section and part in found.section.model_fields:
            found = _of_field(found.section.model_fields[str(part)])
        elif get_origin(found.kind) is list:
            items = found.example if isinstance(found.example, list) else []
            found = _unwrapped(get_args(found.kind)[0], (), items[0] if items else None)
        else:
            return Expectation(Any)
    return found


def _of_field(field: FieldInfo) -> Expectation:
    example = field.examples[0] if field.examples else field.get_default(call_default_factory=True)
    if not field.examples and field.is_required():
        example = None
    return _unwrapped(field.annotation, tuple(field.metadata), example)


def _unwrapped(annotation: Any, bounds: tuple[Any, ...], example: Any) -> Expectation:
    """Strips `Annotated` and `| None`, collecting the bounds and examples they carry."""
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
