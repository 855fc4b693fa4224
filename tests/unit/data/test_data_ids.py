"""Ids: the normal form, the blinded form and the secret."""

import hashlib
import hmac
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data import blind_ids, normalise_ids, read_secret

SECRET = b"0123456789abcdef"


def test_normal_form():
    assert normalise_ids([" a\t", "007", 7, np.int64(-3), b"x"]) == ["a", "007", "7", "-3", "x"]
    assert normalise_ids(["Zu\u0308rich"]) == ["Z\u00fcrich"]
    assert normalise_ids(pl.Series([10, 20])) == ["10", "20"]
    assert normalise_ids(np.array(["a", "b"])) == ["a", "b"]


@given(st.lists(st.text().filter(lambda text: text.strip())))
def test_normal_form_is_stable(values):
    once = normalise_ids(values)
    assert normalise_ids(once) == once


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "is missing"),
        ("  ", "is empty"),
        (1.0, "is a float"),
        (np.float32(2), "is a float"),
        (True, "is a boolean"),
        (b"\xff", "is not UTF-8"),
        ("\ud800", "is not valid Unicode"),
        ([1], "is a list"),
    ],
)
def test_refused_ids_name_the_row(value, message):
    with pytest.raises(DataError, match=f"^t.csv: the id of row 2 {message}"):
        normalise_ids(["ok", value], where="t.csv")


def test_blinded_ids_are_hmac_under_the_secret():
    blinded = blind_ids(["a", "é"], SECRET, "churn")
    assert (blinded.shape, blinded.dtype) == ((2, 32), np.uint8)
    message = b"laser-vfl/id/1\0\0\0\x05churn" + "é".encode()
    assert blinded[1].tobytes() == hmac.digest(SECRET, message, hashlib.sha256)
    assert blind_ids([], SECRET, "churn").shape == (0, 32)


def test_blinded_ids_differ_by_secret_and_federation():
    places = [(SECRET, "churn"), (SECRET, "chur"), (SECRET + b"!", "churn")]
    assert len({blind_ids(["a"], *place).tobytes() for place in places}) == len(places)


def test_secret_loses_only_its_newline(tmp_path: Path):
    path = tmp_path / "id.secret"
    path.touch(0o600)
    path.write_bytes(b" 0123456789abcdef \r\n")
    assert read_secret(path) == b" 0123456789abcdef "


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "is not there"), (b"\n", "is empty"), (b"short\n", "has 5 bytes")],
)
def test_bad_secret_says_how_to_make_one(tmp_path: Path, content, message):
    path = tmp_path / "id.secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        read_secret(path)
    assert "(umask 077; openssl rand -hex 32 > id.secret)" in caught.value.hint
    assert "short" not in str(caught.value)


def test_secret_that_is_a_folder(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read the id secret"):
        read_secret(tmp_path)


@pytest.mark.parametrize("length", [16, 63, 64, 65, 200])
def test_blinded_ids_are_hmac_sha256(length):
    secret = bytes(range(length))
    ids = ["person-1", "Zoë", "", "x" * 500]
    prefix = b"laser-vfl/id/1" + (5).to_bytes(4, "big") + b"churn"
    expected = [hmac.digest(secret, prefix + text.encode(), "sha256") for text in ids]
    assert [row.tobytes() for row in blind_ids(ids, secret, "churn")] == expected
