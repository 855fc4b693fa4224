"""What the YAML parser found wrong, in the words of someone who writes a configuration."""

import yaml

from laser_vfl.config.text import one_line

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
"""Errors that the parser notices long after the place to mend."""


def explain_syntax(error: yaml.MarkedYAMLError) -> tuple[str, str]:
    """A message and a hint for an error of the parser."""
    text = _text(error)
    for words, message, hint in _EXPLANATIONS:
        if words in text:
            return f"not valid YAML: {message}", hint
    return f"not valid YAML: {one_line(error.problem or 'unknown reason')}", "check this line"


def mark_to_blame(error: yaml.MarkedYAMLError) -> yaml.Mark | None:
    """Where a person should look."""
    marks = [error.problem_mark, error.context_mark]
    if any(words in _text(error) for words in _BLAMES_START):
        marks.reverse()
    return next((mark for mark in marks if mark is not None), None)


def _text(error: yaml.MarkedYAMLError) -> str:
    return f"{error.context or ''} {error.problem or ''}"
