"""Builds the module that a configuration names: a built-in, or `package.module:factory`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import nn

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.table_form import TableForm
from laser_vfl.core.table_rows import reads_block
from laser_vfl.models.builtin_models import Lstm, RandomShift, ResNet18, flat_mlp, mlp
from laser_vfl.models.factory import call_factory, import_factory, takes_argument
from laser_vfl.models.tabular import TabularModel

T = TypeVar("T")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """What a row of the block is: its shape if flat, and how it stands in memory."""

    shape: Shape
    form: TableForm | None
    """None for a row of several dimensions."""


def build_representation(
    name: str,
    *,
    input_shape: Shape,
    representation_dim: int,
    hidden: Sequence[int],
    options: Mapping[str, object],
    form: TableForm | None = None,
) -> nn.Module:
    """Build the representation model f_k; `hidden` is for `mlp`, the others have their options.

    `input_shape` is that of a flat row. With a `form`, the model takes rows as they are in memory:
    what has the attribute `takes_table` gets a `TableBatch`, and every other model flat rows. A
    factory of the user's own is given the form if it has a parameter of that name; it is None for
    rows of more than one dimension.
    """
    if form is None and len(input_shape) == 1:
        form = TableForm.of_numbers(input_shape[0])
    if ":" in name:
        given: dict[str, object] = {
            "input_shape": input_shape,
            "representation_dim": representation_dim,
        }
        if takes_argument(name, "form"):
            given["form"] = form
        return reads_block(call_factory(name, given, options), form)
    build = _named(name, _REPRESENTATIONS, "representation model")
    taken = Options(name, options)
    module = build(Row(input_shape, form), representation_dim, hidden, taken)
    taken.refuse_unknown()
    return reads_block(module, form)


def build_fusion(
    name: str, *, representation_dim: int, num_outputs: int, options: Mapping[str, object]
) -> nn.Module:
    """Build the fusion head g_k: from an averaged representation to outputs."""
    if ":" in name:
        given = {"representation_dim": representation_dim, "num_outputs": num_outputs}
        return call_factory(name, given, options)
    build = _named(name, _FUSIONS, "fusion model")
    taken = Options(name, options)
    module = build(representation_dim, num_outputs, taken)
    taken.refuse_unknown()
    return module


def check_representation_name(name: str) -> None:
    """Refuse a name that stands for no representation model, before anything is built."""
    _resolve(name, _REPRESENTATIONS, "representation model")


def check_fusion_name(name: str) -> None:
    """Refuse a name that stands for no fusion model, before anything is built."""
    _resolve(name, _FUSIONS, "fusion model")


class OptionError(ConfigError):
    """An option of a model is at fault, and not the choice of the model."""


def check_hidden(name: str) -> None:
    """Refuse `hidden`, which has been given, for a model that would leave it unread in silence."""
    if name == "tabular":
        raise ConfigError(
            "tabular does not read hidden: its layers are all of one width",
            hint="remove it, and say model.representation_options: {width: 256, layers: 2}",
        )


class Options:
    """The options of a built-in model, read one by one; an option that nobody reads is an error."""

    def __init__(self, model: str, given: Mapping[str, object]) -> None:
        self._model = model
        self._given = given
        self._known: list[str] = []

    def integer(self, name: str, default: int, *, least: int = 1) -> int:
        self._known.append(name)
        value = self._given.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise OptionError(
                f"{self._model}: option {name}: expected an integer of at least {least}, "
                f"got {value!r}",
                hint=f"the default is {default}",
            )
        return value

    def share(self, name: str, default: float) -> float:
        self._known.append(name)
        value = self._given.get(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
            return float(value)
        raise OptionError(
            f"{self._model}: option {name}: expected a number from 0 to below 1, got {value!r}",
            hint=f"the default is {default}",
        )

    def sizes(self, name: str, default: Sequence[int]) -> list[int]:
        self._known.append(name)
        value = self._given.get(name, default)
        try:
            return check_sizes([value] if isinstance(value, int) else value, f"option {name}")
        except ConfigError as error:
            raise OptionError(f"{self._model}: {error.message}", hint=error.hint) from None

    def refuse_unknown(self) -> None:
        unknown = [name for name in self._given if name not in self._known]
        if unknown:
            known = ", ".join(self._known) or "none"
            raise OptionError(
                f'{self._model} has no option "{unknown[0]}"', hint=f"its options: {known}"
            )


def check_sizes(value: object, name: str) -> list[int]:
    """Return the widths of hidden layers, or refuse what is no list of them."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        sizes = [
            size
            for size in value
            if isinstance(size, int) and not isinstance(size, bool) and size > 0
        ]
        if len(sizes) == len(value):
            return sizes
    raise ConfigError(
        f"{name}: expected a list of integers of at least 1, got {value!r}",
        hint="for example [64, 64]",
    )


def _mlp(row: Row, dim: int, hidden: Sequence[int], options: Options) -> nn.Module:
    return flat_mlp(row.shape, check_sizes(hidden, "hidden"), dim)


def _tabular(row: Row, dim: int, hidden: Sequence[int], options: Options) -> nn.Module:
    if row.form is None:
        raise ConfigError(
            f"tabular needs the rows of a table, this block has {row.shape}",
            hint="choose another model.representation: resnet18 for images, lstm for sequences",
        )
    return TabularModel(
        row.form,
        dim,
        width=options.integer("width", 256),
        layers=options.integer("layers", 2),
        embedding=options.integer("embedding", 8),
        dropout=options.share("dropout", 0.2),
    )


def _resnet18(row: Row, dim: int, hidden: Sequence[int], options: Options) -> nn.Module:
    shape = row.shape
    stem_padding = options.integer("stem_padding", 1, least=0)
    width = options.integer("width", 64)
    augment = options.integer("augment", 0, least=0)
    _need_dimensions("resnet18", shape, 3, "(channels, height, width)")
    if min(shape[1:]) + 2 * stem_padding < 3:
        raise ConfigError(
            f"resnet18 needs images of at least {3 - 2 * stem_padding} pixels a side, "
            f"this block has {shape}",
            hint="set stem_padding: 1 or choose another model.representation",
        )
    model = ResNet18(shape[0], dim, width=width, stem_padding=stem_padding)
    return nn.Sequential(RandomShift(augment), model) if augment else model


def _lstm(row: Row, dim: int, hidden: Sequence[int], options: Options) -> nn.Module:
    width, layers = options.integer("width", 128), options.integer("layers", 1)
    shape = row.shape
    _need_dimensions("lstm", shape, 2, "(steps, features)")
    return Lstm(shape[1], dim, width=width, layers=layers)


def _linear_fusion(dim: int, num_outputs: int, options: Options) -> nn.Module:
    return nn.Linear(dim, num_outputs)


def _mlp_fusion(dim: int, num_outputs: int, options: Options) -> nn.Module:
    hidden, dropout = options.sizes("hidden", [dim]), options.share("dropout", 0.0)
    return mlp([dim, *hidden, num_outputs], dropout=dropout)


_REPRESENTATIONS: dict[str, Callable[[Row, int, Sequence[int], Options], nn.Module]] = {
    "lstm": _lstm,
    "mlp": _mlp,
    "resnet18": _resnet18,
    "tabular": _tabular,
}
_FUSIONS: dict[str, Callable[[int, int, Options], nn.Module]] = {
    "linear": _linear_fusion,
    "mlp": _mlp_fusion,
}


def _named(name: str, known: Mapping[str, T], what: str) -> T:
    if name not in known:
        raise ConfigError(
            f'unknown {what} "{name}"',
            hint=f"use {', '.join(known)} or your own as package.module:factory",
        )
    return known[name]


def _resolve(name: str, known: Mapping[str, object], what: str) -> object:
    return import_factory(name) if ":" in name else _named(name, known, what)


def _need_dimensions(name: str, shape: Shape, num_dimensions: int, needed: str) -> None:
    if len(shape) != num_dimensions:
        raise ConfigError(
            f"{name} needs rows of the shape {needed}, this block has {shape}",
            hint="choose another model.representation or save the block in that shape",
        )
