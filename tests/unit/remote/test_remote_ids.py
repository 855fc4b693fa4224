"""What people write: times, and files of ids."""

import io

import pytest

from laser_vfl.cli.ids_file import read_ids
from laser_vfl.cli.option_parsers import parse_seconds
from laser_vfl.core import errors


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("200ms", 0.2),
        ("1.5s", 1.5),
        ("2s", 2.0),
        ("0.5", 0.5),
        (" 3 s", 3.0),
        ("5min", 300.0),
        ("2h", 7200.0),
    ],
)
def test_a_deadline_is_read(text, seconds):
    assert parse_seconds(text, "--deadline") == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["0", "0ms", "-1", "-1s", "soon", "", "1m", "nan", "inf", "1e3", "2 s s", "٣s"]
)
def test_a_deadline_that_is_none_is_a_config_error(text):
    with pytest.raises(errors.ConfigError, match=r"--deadline") as caught:
        parse_seconds(text, "--deadline")
    assert caught.value.exit_code == 2


def ids_in(content, tmp_path):
    return list(read_ids(io.BytesIO(content), tmp_path / "ids.csv"))


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        (b"id\n1\n2\n", ["1", "2"]),
        (b"\xef\xbb\xbfid\r\n1\r\n2", ["1", "2"]),
        (b"customer\n007\n", ["007"]),
        (b'name,id\n"a, b",1\nc,\n', ["1", ""]),
        (b'id\n"x\ny"\n\n""\n \n', ["x\ny", "", " "]),
        (b"id\n", []),
        ("id\nJosé\n".encode(), ["José"]),
    ],
)
def test_ids_are_read(content, ids, tmp_path):
    assert ids_in(content, tmp_path) == ids


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "ids.csv: the file is empty"),
        (b"\n1\n", "ids.csv:1: there is no header"),
        (b"1001\n1002\n", "ids.csv:1: there is no header"),
        (b"name,city\na,b\n", 'ids.csv:1: no column is called "id"'),
        (b"id,id\n1,2\n", 'ids.csv:1: 2 columns are called "id"'),
        (b"id;name\n1;a\n", "ids.csv:1: .* looks like many columns"),
        (b"id,name\n1,a\n2\n", "ids.csv:3: this row has 1 fields, the header has 2"),
        (b"id\n1\n2,3\n", "ids.csv:3: this row has 2 fields"),
        (b"id\n1\n\xff\xfe\n", "ids.csv:3: this line is not UTF-8"),
        (b'id\n1\n"2\n', "ids.csv:3: this line is not CSV"),
        (b"id\n" + b"1" * 2_000_000, "ids.csv:2: this line is too long"),
    ],
)
def test_a_file_that_is_wrong_is_a_data_error(content, said, tmp_path):
    with pytest.raises(errors.DataError, match=said) as caught:
        ids_in(content, tmp_path)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "ids"),
    [
        (b"customer_id,city\n7,Oslo\n", ["7"]),
        (b"id,customer_id\n1,7\n", ["7"]),
        (b"id,city\n1,Oslo\n", ["1"]),
        (b"person\n9\n", ["9"]),
    ],
)
def test_the_column_may_be_called_as_in_the_tables(content, ids, tmp_path):
    found = read_ids(io.BytesIO(content), tmp_path / "ids.csv", "customer_id")
    assert list(found) == ids


def test_a_file_without_either_column_is_refused(tmp_path):
    with pytest.raises(errors.DataError, match=r'no column is called "customer_id" or "id"'):
        list(read_ids(io.BytesIO(b"name,city\na,b\n"), tmp_path / "ids.csv", "customer_id"))
