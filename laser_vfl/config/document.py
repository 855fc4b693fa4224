"""Reads a YAML file: plain values, and the position of every key."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from laser_vfl.config.key_positions import START, KeyPath, KeyPositions, Position
from laser_vfl.config.text import one_line, shown
from laser_vfl.core.errors import ConfigError

MAX_BYTES = 1 << 20
MAX_DEPTH = 20


def read_text(path: Path) -> str:
    """Return the whole file as UTF-8 text; raise `ConfigError` if it is anything else."""
    name = one_line(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("no such file", hint="check the path", where=name) from None
    except IsADirectoryError:
        raise ConfigError(
            "is a directory", hint="name the YAML file inside it", where=name
        ) from None
    except PermissionError:
        raise ConfigError(
            "may not be read by this user", hint="change its permissions or the user", where=name
        ) from None
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise ConfigError(f"cannot be read: {reason}", hint="check the path", where=name) from None
    if len(content) > MAX_BYTES:
        raise ConfigError(
            "is larger than 1 MiB",
            hint="name a configuration file, not a table or a model",
            where=name,
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig", errors="replace")
        raise ConfigError(
            "this is not UTF-8 text",
            hint="save the file with the encoding UTF-8",
            where=f"{name}:{position_in(before, len(before))}",
        ) from None


@dataclass(frozen=True)
class Document:
    """The mapping that a file holds, and where its keys are."""

    value: dict[str, object]
    key_positions: KeyPositions


def parse_document(text: str, file: str) -> Document:
    """Return the one mapping in a YAML text; `file` is how errors name it."""
    file = one_line(file)
    try:
        root = _Loader(text).get_single_node()
    except ReaderError as error:
        raise ConfigError(
            "a character that YAML does not allow",
            hint="remove it or write it as an escape in double quotes",
            where=f"{file}:{position_in(text, error.position)}",
        ) from None
    except _Refused as refused:
        raise ConfigError(
            refused.message, hint=refused.hint, where=f"{file}:{refused.position}"
        ) from None
    except yaml.MarkedYAMLError as error:
        message, hint = explain_syntax(error)
        mark = mark_to_blame(error)
        raise ConfigError(
            message, hint=hint, where=f"{file}:{_position(mark) if mark else START}"
        ) from None
    if root is None or _is_null(root):
        raise ConfigError(
            "the file is empty",
            hint="write lines such as federation: churn",
            where=f"{file}:{START}",
        )
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            "expected keys with values at the top of the file",
            hint="write lines such as federation: churn",
            where=f"{file}:{_position(root.start_mark)}",
        )
    reader = _NodeReader(file)
    return Document(reader.mapping(root, ()), KeyPositions(file, reader.positions))


@dataclass
class _NodeReader:
    """Turns YAML nodes into values, and records the position of every key and item."""

    file: str
    positions: dict[KeyPath, Position] = field(default_factory=dict)

    def value(self, node: yaml.Node, path: KeyPath) -> object:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.positions[(*path, index)] = _position(item.start_mark)
                items.append(self.value(item, (*path, index)))
            return items
        return self._scalar(node)

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        result: dict[str, object] = {}
        for key_node, value_node in node.value:
            position = _position(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse("a key must be text", "write key: value", position)
            key = self._scalar(key_node)
            if not isinstance(key, str):
                hint = f'put it in quotes, as in "{one_line(key_node.value)}"'
                self._refuse(f"a key must be text, got {shown(key)}", hint, position)
            key_path = (*path, key)
            if key in result:
                raise ConfigError(
                    f"this key is already on line {self.positions[key_path].line}",
                    hint="keep one of the two",
                    where=KeyPositions(self.file, {key_path: position}).where(key_path),
                )
            self.positions[key_path] = position
            result[key] = self.value(value_node, key_path)
        return result

    def _scalar(self, node: yaml.Node) -> object:
        text: str = node.value
        match node.tag:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                if len(text) > 1000:  # Python refuses to convert thousands of digits
                    self._refuse(
                        "an integer of too many digits",
                        "write a smaller one",
                        _position(node.start_mark),
                    )
                return int(text)
            case "float":
                return float(text.replace(".inf", "inf").replace(".nan", "nan"))
            case _:
                return text

    def _refuse(self, message: str, hint: str, position: Position) -> NoReturn:
        raise ConfigError(message, hint=hint, where=f"{self.file}:{position}")


class _Refused(Exception):
    """Valid YAML that a configuration file may not hold."""

    def __init__(self, message: str, hint: str, position: Position) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.position = position


class _Resolver(BaseResolver):
    """Scalars as in YAML 1.2: `no` and `on` are text, `1e-3` is a number, `007` keeps its zeros."""


_Resolver.add_implicit_resolver("null", re.compile(r"(~|null|Null|NULL|)\Z"), None)
_Resolver.add_implicit_resolver(
    "bool", re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")
)
_Resolver.add_implicit_resolver("int", re.compile(r"[-+]?(0|[1-9][0-9]*)\Z"), list("-+0123456789"))
_Resolver.add_implicit_resolver(
    "float",  # after int, which it would match too
    re.compile(
        r"([-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan)\Z"
    ),
    list("-+.0123456789"),
)


class _Loader(Reader, Scanner, Parser, Composer, _Resolver):
    """Text to nodes. It has no constructor: nothing in a file can name a Python object."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        _Resolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        position = _position(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _Refused(
                "anchors (&) and aliases (*) are not allowed here",
                "write the value out, or in quotes if it is text",
                position,
            )
        if getattr(event, "tag", None) is not None:
            raise _Refused(
                "tags (!) are not allowed here",
                "write the value without it, or in quotes if it is text",
                position,
            )
        if self._depth == MAX_DEPTH:
            raise _Refused(
                f"nested more than {MAX_DEPTH} deep", "write a flatter structure", position
            )
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _position(mark: yaml.Mark) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "null"


def position_in(text: str, index: int) -> Position:
    """Return the line and column of a character of `text`."""
    before = text[:index]
    return Position(before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1)


# PyYAML gives its errors no codes: they can be told apart by their words alone. These are read
# here only, to explain an error; one that is not recognised is shown as PyYAML wrote it.
_EXPLANATIONS = (
    ("'\\t'", "a tab where YAML wants spaces", "indent with spaces"),
    (
        "mapping values are not allowed",
        "a colon that does not fit here",
        "put text that has a colon and a space in quotes, and check the lines above",
    ),
    (
        "expected <block end>",
        "this does not fit what stands above it",
        "align the keys of one mapping, and put all of a quoted text in its quotes",
    ),
    (
        "could not find expected ':'",
        "a key without its colon",
        "write key: value, and check that quotes and brackets above are closed",
    ),
    ("expected ',' or ']'", "a list that is not closed", "separate items by , and end with ]"),
    ("expected ',' or '}'", "a mapping that is not closed", "separate keys by , and end with }"),
    ("unexpected end of stream", "a quote that is not closed", "add the closing quote"),
    ("but found another document", "a second document", "remove everything from the second --- on"),
    (
        "expected the node content",
        "a value that YAML cannot read",
        'put it in quotes, as in "[::1]:7000"',
    ),
    ("cannot start any token", "a character that cannot start a value", "put the value in quotes"),
)


_BLAMES_START = ("could not find expected ':'", "expected ',' or", "unexpected end of stream")
"""Errors that the parser notices long after the place where they were made."""


def explain_syntax(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    """Return a message and a hint for an error of the parser."""
    text = _text(error)
    for words, message, hint in _EXPLANATIONS:
        if words in text:
            return f"not valid YAML: {message}", hint
    return f"not valid YAML: {one_line(error.problem or 'unknown reason')}", "check this line"


def mark_to_blame(error: yaml.MarkedYAMLError) -> yaml.Mark | None:
    """Return the place where the mistake probably is."""
    marks = [error.problem_mark, error.context_mark]
    if any(words in _text(error) for words in _BLAMES_START):
        marks.reverse()
    return next((mark for mark in marks if mark is not None), None)


def _text(error: yaml.MarkedYAMLError) -> str:
    return f"{error.context or ''} {error.problem or ''}"
