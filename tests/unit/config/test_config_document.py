"""YAML as we read it: positions, refusals, and the scalars that surprise people."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.config.document import parse_document
from laser_vfl.config.key_positions import Position
from laser_vfl.core.errors import ConfigError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_document(text, "a.yaml")
    assert caught.value.hint
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_positions_of_keys_and_items() -> None:
    document = parse_document("a:\n  b: [1,\n    two]\n  c: {d: 1}\n", "a.yaml")
    assert document.value == {"a": {"b": [1, "two"], "c": {"d": 1}}}
    assert document.key_positions.positions == {
        ("a",): Position(1, 1),
        ("a", "b"): Position(2, 3),
        ("a", "b", 0): Position(2, 7),
        ("a", "b", 1): Position(3, 5),
        ("a", "c"): Position(4, 3),
        ("a", "c", "d"): Position(4, 7),
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1e-3", 0.001), ("1E3", 1000.0), (".5", 0.5), ("1.", 1.0), ("-2.5e-1", -0.25)),
        *(("12", 12), ("-1", -1), ("+3", 3), ("0", 0), ("007", "007"), ("1_000", "1_000")),
        *(("0x1F", "0x1F"), ("12:30", "12:30"), ("2020-01-01", "2020-01-01"), ("1.2.3", "1.2.3")),
        *(("true", True), ("False", False), ("yes", "yes"), ("no", "no"), ("on", "on")),
        *(("null", None), ("~", None), ("", None), ("none", "none"), ("'12'", "12")),
        *(('"true"', "true"), ("-.inf", float("-inf")), ("e3", "e3"), ("=", "="), ("<<", "<<")),
    ],
)
def test_scalars(text: str, value: object) -> None:
    got = parse_document(f"a: {text}", "a.yaml").value["a"]
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("", "a.yaml:1:1: the file is empty"),
        ("# nothing\n---\n", "a.yaml:1:1: the file is empty"),
        ("- 1", "a.yaml:1:1: expected keys with values"),
        ("text", "a.yaml:1:1: expected keys with values"),
        ("a: 1\nb: &x 1", "a.yaml:2:4: anchors (&) and aliases (*) are not allowed"),
        ("a: *x", "a.yaml:1:4: anchors (&) and aliases (*) are not allowed"),
        ("a: !!str 1", "a.yaml:1:4: tags (!) are not allowed"),
        ("a: !!python/object/apply:os.getcwd []", "a.yaml:1:4: tags (!) are not allowed"),
        ("&a a: 1", "a.yaml:1:1: anchors"),
        ("a: 1\nb: 2\na: 3", "a.yaml:3:1: a: this key is already on line 1"),
        ("a:\n  b: 1\n  b: 2", "a.yaml:3:3: a.b: this key is already on line 2"),
        ("a: 1\n2: b", "a.yaml:2:1: a key must be text, got 2"),
        ("a: 1\ntrue: b", "a.yaml:2:1: a key must be text, got true"),
        ("? [a]\n: 1", "a.yaml:1:3: a key must be text"),
        ("a: 1\n\tb: 2", "a.yaml:2:1: not valid YAML: a tab"),
        ("a: b: c", "a.yaml:1:5: not valid YAML: a colon"),
        ("a: 1\nb\nc: 2", "a.yaml:2:1: not valid YAML: a key without its colon"),
        ("a: 1\nb: [1, 2\nc: 3\n", "a.yaml:2:4: not valid YAML: a list that is not closed"),
        ("a: {b: 1\nc: [", "a.yaml:1:4: not valid YAML: a mapping that is not closed"),
        ("a: 1\nb: 'x\nc: 2", "a.yaml:2:4: not valid YAML: a quote that is not closed"),
        ("a: [::1]:7", "a.yaml:1:5: not valid YAML: a value that YAML cannot read"),
        ("a: 'b' c", "a.yaml:1:8: not valid YAML: this does not fit"),
        ("a: @b", "a.yaml:1:4: not valid YAML: a character that cannot start"),
        ("a: 1\n---\nb: 1", "a.yaml:2:1: not valid YAML: a second document"),
        ("a: 1\nb: \x07", "a.yaml:2:4: a character that YAML does not allow"),
        ("a: " + "[" * 30, "a.yaml:1:23: nested more than 20 deep"),
        ("a: " + "9" * 5000, "a.yaml:1:4: an integer of too many digits"),
    ],
)
def test_refused_with_a_position(text: str, start: str) -> None:
    assert refusal(text).startswith(start)


def test_a_bomb_is_refused_quickly() -> None:
    assert "nested" in refusal("[" * 1_000_000)
    assert "nested" in refusal("a: " + "{b: " * 100_000)


@given(st.text(alphabet=st.sampled_from("ab:-[]{}'\"\n\t ,?!&*#|>%@1.~\\é\u2028"), max_size=40))
def test_any_text_is_a_mapping_or_refused_on_one_line(text: str) -> None:
    line = "a.yaml:"
    try:
        assert isinstance(parse_document(text, "a.yaml").value, dict)
    except ConfigError as error:
        line = str(error)
    assert len(line.splitlines()) == 1
    assert line.startswith("a.yaml:")
