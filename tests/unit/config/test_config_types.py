"""The small types that both configuration files share."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from laser_vfl.config.address import Address, DialAddress
from laser_vfl.config.field_types import DIRECTORY, LabelText, Name, RelativePath
from laser_vfl.core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:7000", "127.0.0.1", 7000, True),
        ("127.255.0.9:0", "127.255.0.9", 0, True),
        ("localhost:65535", "localhost", 65_535, True),
        ("[::1]:7000", "::1", 7000, True),
        ("[::]:7000", "::", 7000, False),
        ("0.0.0.0:7000", "0.0.0.0", 7000, False),
        ("10.0.0.1:7000", "10.0.0.1", 7000, False),
        ("bank.example.org:7000", "bank.example.org", 7000, False),
        ("localhost.example.org:7000", "localhost.example.org", 7000, False),
    ],
)
def test_an_address_reads_and_prints(text: str, host: str, port: int, is_loopback: bool) -> None:
    address = Address.parse(text)
    assert (address.host, address.port, address.is_loopback) == (host, port, is_loopback)
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", ":", "7000", "localhost", "localhost:", ":7000", "localhost:x", "localhost:-1"),
        *("localhost:65536", "localhost:123456789", "::1:7000", "[::1]", "[::1]7000", "[]:7"),
        *("[127.0.0.1]:7", "300.0.0.1:7", "1.2.3:7", "a b:7", "-a:7", "a..b:7", "http://a:7"),
        *("localhost:7\n", "[fe80::1%\n]:7", "localhost:٣", "a" * 300 + ":7"),
        *("unix:7", "Unix-Abstract:7", "dns:7", "ipv4:7"),
    ],
)
def test_a_malformed_address_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(ConfigError, match="expected an address host:port") as caught:
        Address.parse(text)
    assert caught.value.hint
    assert "\n" not in str(caught.value)


@given(st.text())
def test_any_text_is_an_address_or_refused(text: str) -> None:
    line = ""
    try:
        address = Address.parse(text)
        assert Address.parse(str(address)) == address
    except ConfigError as error:
        line = str(error)
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize("text", ["0.0.0.0:7000", "[::]:7000", "10.0.0.1:0"])
def test_nobody_can_dial_a_wildcard_or_port_0(text: str) -> None:
    with pytest.raises(ValidationError, match="dial"):
        TypeAdapter(DialAddress).validate_python(text)


def test_an_address_is_dumped_as_text() -> None:
    adapter = TypeAdapter(Address)
    assert adapter.dump_python(adapter.validate_python("[::1]:7"), mode="json") == "[::1]:7"


@pytest.mark.parametrize("name", ["a", "7", "bank", "bank_2-x", "a" * 64])
def test_a_name(name: str) -> None:
    assert TypeAdapter(Name).validate_python(name) == name


@pytest.mark.parametrize(
    "name", ["", "Bank", "a,b", "a b", "-a", "_a", "a/b", "é", "a\n", "a" * 65, None, 7, True, []]
)
def test_not_a_name(name: object) -> None:
    with pytest.raises(ValidationError, match="expected a name"):
        TypeAdapter(Name).validate_python(name)


def test_a_path_starts_at_the_directory_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, context = TypeAdapter(RelativePath), {DIRECTORY: Path("conf")}
    monkeypatch.setenv("HOME", "/home/someone")
    assert adapter.validate_python("./a.csv", context=context) == Path("conf/a.csv")
    assert adapter.validate_python("/a.csv", context=context) == Path("/a.csv")
    assert adapter.validate_python("~/a.csv", context=context) == Path("/home/someone/a.csv")
    assert adapter.validate_python(Path("a.csv")) == Path("a.csv")


@pytest.mark.parametrize("value", ["", None, 7, ["a"], "a\0b", "a\nb", "~nobody-has-this-name/x"])
def test_not_a_path(value: object) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(RelativePath).validate_python(value)


@pytest.mark.parametrize(
    ("value", "text"), [("yes", "yes"), (1, "1"), (True, "true"), (1.5, "1.5")]
)
def test_a_label_value_is_text(value: object, text: str) -> None:
    assert TypeAdapter(LabelText).validate_python(value) == text
