"""Inputs that are nearly right: good ones, changed in a few places that a reader might trust.

Each change is drawn from one number, so that what fails is reduced to the fewest changes.
"""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

MOST_BYTES = 1 << 16
MOST_CHANGES = 4

Arrays = dict[str, npt.NDArray[Any]]
T = TypeVar("T")

_SEEDS = st.integers(0, 2**32 - 1)
_DEEP = "@deep@"
_LONG = "@long@"
_PLACES = {
    json.dumps(_DEEP): "[" * 50_000 + "]" * 50_000,
    json.dumps(_LONG): "9" * 5_000,
}
"""What the json module would not write."""

_JSON: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, -(2**31), 2**53, 2**63 - 1, 2**63, -(2**63), 2**64,
    10**30, 10**400, 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf"), -float("inf"), "", " ",
    "0", "-1", "bank", "shop", "a,b", "..", "../../x", "/", "x" * 3000, "\0", "\ud800",
    "é\n\x1b[2J", "host:1", "NaN", [], {}, [[]], [None], [1, 2], {"": None}, {"a": {"b": []}},
    _DEEP, _LONG,
]  # fmt: skip
_KEYS = ["", "x", "0", "\ud800", "version", "run", "bank"]

_TEXTS = [
    "", " ", "0", "bank", "shop", "nobody", "run-1", "alignment-1", "..", "../../x", "\0", "é\n",
    "\x1b[2J", "x" * 300, "x" * 5000, "=1+1", "nan", "inf", "1e999", "host:1", "[::1]:7", "shop:0",
    "unix:/x", "hmac", "ecdh", "float16", "laser", "once", "\U0001f600",
]  # fmt: skip
_BYTES = [
    b"", b"\0", bytes(3), bytes(4), bytes(12), bytes(31), bytes(32), bytes(33), bytes(64),
    b"\xff" * 4, b"\xff" * 8, b"\xff" * 32, bytes([1]) + bytes(31), bytes(4096),
]  # fmt: skip
_WHOLE = [0, 1, 2, 3, 5, 64, 77, 255, 256, 65_535, 2**20, 2**31 - 1, 2**31, 2**32 - 1,
          2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]  # fmt: skip
_REAL = [0.0, -0.0, 1.0, -1.0, 1e-320, 1e-9, 0.999, 1e18, 1e308,
         float("nan"), float("inf"), -float("inf")]  # fmt: skip
_SIZES = {
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64),
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63),
}
_INDENTS = ["", " ", "  ", "    ", "\t", "- "]
_WORDS = [
    "", "0", "-1", "1e400", "nan", ".inf", "-.inf", "9" * 400, "true", "null", "~", "[]", "{}",
    "[" * 60, "{a: " * 60, "&a [*a]", "!!python/object/apply:os.system [true]", "!x y", "%YAML",
    "---", "...", "? x", "| ", '"', "'", "a: b: c", "\0", "\ufeff", "\x85", "\u2028", "é",
    "\ud800", "x" * 2000, "unix:/x", "0.0.0.0:99999", "[::1]:0", "/", "..", "~/x", "a b", "#",
    "2020-01-01", "1_000", "0x10", "12:30:45", "<<: 1", "\\", "1,2,3", "*", "-", "b" * 64,
]  # fmt: skip


def changed(
    goods: Sequence[T],
    change: Callable[[Random, T], T],
    written: Callable[[T], bytes],
    most: int = MOST_CHANGES,
) -> st.SearchStrategy[bytes]:
    """Return one of some good values after a few changes, as bytes that may be damaged besides."""

    def make(drawn: tuple[int, list[int], int]) -> bytes:
        place, seeds, damage = drawn
        data = written(_after(goods[place], change, seeds))
        return _change_bytes(Random(damage), data) if damage % 8 == 1 else data

    return _drawn(goods, most).map(make)


def changed_value(goods: Sequence[T], change: Callable[[Random, T], T]) -> st.SearchStrategy[T]:
    """Return one of some good values after a few changes."""
    return _drawn(goods, MOST_CHANGES).map(lambda drawn: _after(goods[drawn[0]], change, drawn[1]))


def _drawn(goods: Sequence[Any], most: int) -> st.SearchStrategy[tuple[int, list[int], int]]:
    seeds = st.lists(_SEEDS, max_size=most)
    return st.tuples(st.integers(0, len(goods) - 1), seeds, _SEEDS)


def _after(good: T, change: Callable[[Random, T], T], seeds: Sequence[int]) -> T:
    value = deepcopy(good)
    for seed in seeds:
        value = change(Random(seed), value)
    return value


def changed_bytes(goods: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Return one of some good inputs with a few cuts, copies and other bytes in it."""
    return changed(goods, _change_bytes, lambda data: data[:MOST_BYTES])


def changed_text(goods: Sequence[str]) -> st.SearchStrategy[bytes]:
    """Return one of some good texts, with words and lines swapped, cut or replaced."""
    return changed(goods, _change_text, _encoded)


def changed_json(goods: Sequence[Any]) -> st.SearchStrategy[bytes]:
    """Return a JSON document in which some values are what nobody wrote."""
    return changed(goods, change_json, json_bytes)


def changed_message(goods: Sequence[Message]) -> st.SearchStrategy[bytes]:
    """Return one of some good messages with a few fields changed, as bytes."""
    return changed(goods, _change_message, lambda message: message.SerializeToString())


def several(one: st.SearchStrategy[bytes], most: int = 6) -> st.SearchStrategy[bytes]:
    """Return several messages as one input, each after its length."""
    return st.lists(one, min_size=1, max_size=most).map(
        lambda pieces: b"".join(len(p).to_bytes(4, "little") + p for p in pieces)
    )


def apart(data: bytes) -> list[bytes]:
    """Return the messages of such an input."""
    pieces = []
    while data:
        end = 4 + int.from_bytes(data[:4], "little")
        pieces.append(data[4:end])
        data = data[end:]
    return pieces


def json_bytes(value: Any) -> bytes:
    """Write a document, and in it what the json module would not write."""
    text = json.dumps(value)
    for mark, written in _PLACES.items():
        text = text.replace(mark, written)
    return text.encode()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")[:MOST_BYTES]


def _change_bytes(random: Random, good: bytes) -> bytes:
    data = bytearray(good)
    at = random.randint(0, len(data))
    match random.randrange(7):
        case 0:
            del data[at:]
        case 1 if data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        case 2 if data:
            data[at % len(data)] = random.choice([0, 1, 9, 10, 32, 34, 127, 128, 255])
        case 3:
            del data[at : at + random.randint(1, 16)]
        case 4:
            data[at:at] = random.randbytes(random.randint(1, 8))
        case 5:
            piece = data[at : at + random.randint(1, 64)]
            to = random.randint(0, len(data))
            data[to:to] = piece * random.choice([1, 1, 2, 100])
        case _:
            number = random.choice(_WHOLE).to_bytes(8, random.choice(["little", "big"]))
            size = random.choice([2, 4, 8])
            data[at : at + size] = number[:size] if random.random() < 0.5 else number[-size:]
    return bytes(data[:MOST_BYTES])


def _change_text(random: Random, text: str) -> str:
    lines = text.split("\n")
    at = random.randrange(len(lines))
    match random.randrange(6):
        case 0 if len(lines) > 1:
            del lines[at]
        case 1:
            lines.insert(at, random.choice(lines))
        case 2:
            lines[at] = random.choice(_INDENTS) + lines[at].strip()
        case 3:
            head, colon, _ = lines[at].partition(":")
            lines[at] = f"{head}{colon or ','} {random.choice(_WORDS)}"
        case 4:
            mark = random.choice([",", " "])
            words = lines[at].split(mark)
            words[random.randrange(len(words))] = random.choice(_WORDS)
            lines[at] = mark.join(words)
        case _:
            lines.insert(at, random.choice(_WORDS))
    return "\n".join(lines)


def change_json(random: Random, value: Any) -> Any:
    """Go some way down into a value and replace, remove, repeat or add something there."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.08:
        return deepcopy(random.choice(_JSON))  # which may be changed again
    key = random.choice(list(value) if isinstance(value, dict) else range(len(value)))
    match random.randrange(8):
        case 0:
            del value[key]
        case 1 if isinstance(value, dict):
            value[random.choice([*_KEYS, *value])] = deepcopy(value[key])
        case 1:
            value.extend(deepcopy(value[key]) for _ in range(random.choice([1, 2, 50])))
        case _:
            value[key] = change_json(random, value[key])
    return value


def change_arrays(random: Random, arrays: Arrays) -> Arrays:
    """Give one of some named arrays another shape, type or value, or leave it out."""
    if not arrays:
        return arrays
    name = random.choice(sorted(arrays))
    array = np.array(arrays[name])
    with np.errstate(all="ignore"):
        match random.randrange(6):
            case 0:
                return {key: value for key, value in arrays.items() if key != name}
            case 1:
                array = np.atleast_1d(array)[: random.randrange(4)]
            case 2:
                array = np.concatenate([np.atleast_1d(array)] * 2)
            case 3:
                array = array.astype(random.choice(["u1", "i1", "i4", "i8", "u8", "f4", "f8", "?"]))
            case 4:
                array = array.reshape(random.choice([(-1,), (1, -1), (-1, 1)]))
            case 5 if array.size and array.dtype.kind in "iuf":
                array.reshape(-1)[random.randrange(array.size)] = _number(random, array.dtype)
    return arrays | {name: np.ascontiguousarray(array)}


def _number(random: Random, dtype: np.dtype[Any]) -> float:
    least, most = -1e308, 1e308
    if dtype.kind != "f":
        least, most = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    number = random.choice([-1, 0, 1, 2, 3, 255, 2**31, 2**62, least, most])
    return min(max(number, least), most)


def _change_message(random: Random, message: Any) -> Any:
    fields = list(message.DESCRIPTOR.fields)
    if not fields:
        return message
    field = random.choice(fields)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return message
    if field.is_repeated:
        _change_list(random, getattr(message, field.name), field)
    elif random.random() < 0.15:
        message.ClearField(field.name)
    elif field.message_type is not None:
        inner = getattr(message, field.name)
        inner.SetInParent()
        _change_message(random, inner)
    else:
        setattr(message, field.name, _scalar(random, field))
    return message


def _change_list(random: Random, values: Any, field: FieldDescriptor) -> None:
    many = random.choice([1, 1, 1, 2, 300])
    match random.randrange(4):
        case 0 if len(values):
            del values[random.randrange(len(values))]
        case 1 if len(values):
            values.extend([random.choice(values)] * many)
        case 2 if len(values) and field.message_type is not None:
            _change_message(random, random.choice(values))
        case 2 if len(values):
            values[random.randrange(len(values))] = _scalar(random, field)
        case _ if field.message_type is not None:
            _change_message(random, values.add())
        case _:
            values.extend([_scalar(random, field)] * many)


def _scalar(random: Random, field: FieldDescriptor) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice([0, 1, 2, 3, 4, 5, 6, 77, -1, 2**31 - 1])
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return random.choice([*_REAL, random.uniform(-10, 10)])
    if kind in _SIZES:
        least, end = _SIZES[kind]
        return random.choice([number for number in _WHOLE if least <= number < end])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.choice([*_BYTES, random.randbytes(random.randint(0, 100))])
    return random.choice(_TEXTS)
