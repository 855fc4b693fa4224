"""Sample ids: normalised so that all organisations agree, and blinded before they leave."""

import hashlib
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.private_files import require_private

BLINDED_BYTES = hashlib.sha256().digest_size
BLOCK_BYTES = hashlib.sha256().block_size
MIN_SECRET_BYTES = 16


def normalise_ids(values: Iterable[object], *, where: str = "") -> list[str]:
    """Return the ids as text, equal at all organisations that mean the same sample.

    Text is trimmed of white space and put in Unicode form NFC; integers become decimal text.
    Floats, booleans, nulls and empty text name no sample reliably and are refused. Text is
    otherwise left alone: "007" and "7" are two ids. Rows are counted from 1, header excluded.
    """
    return [normalise_id(value, row, where) for row, value in enumerate(values, start=1)]


def normalise_id(value: object, row: int | None = None, where: str = "") -> str:
    """Return one id as `normalise_ids` does; a refusal names its row, if it has one."""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            raise _refused("is not UTF-8 text", row, where) from None
    if isinstance(value, str):
        text = value.strip()
        if not text:
            raise _refused("is empty", row, where)
        if text.isascii():
            return text
        text = unicodedata.normalize("NFC", text)
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise _refused("is not valid Unicode text", row, where)
        return text
    if value is None:
        raise _refused("is missing", row, where)
    if isinstance(value, bool | np.bool_):
        raise _refused("is a boolean", row, where)
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        raise _refused("is a float", row, where)
    raise _refused(f"is a {type(value).__name__}", row, where)


def id_blinder(secret: bytes, federation: str) -> Callable[[Sequence[str]], npt.NDArray[np.uint8]]:
    """Return what gives the HMAC-SHA256 of normalised ids under a secret, (n, 32) bytes.

    The federation is part of what is hashed, so ids cannot be linked across federations. The
    table is not: a person in one client's training table and in another's test table is found.
    """
    # HMAC from its definition, because the copies that make it quick are slow in the hmac module.
    key = secret if len(secret) <= BLOCK_BYTES else hashlib.sha256(secret).digest()
    key = key.ljust(BLOCK_BYTES, b"\0")
    inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in key))
    inner.update(b"laser-vfl/id/1" + framed(federation))
    outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in key))

    def blind(ids: Sequence[str]) -> npt.NDArray[np.uint8]:
        blinded = bytearray(BLINDED_BYTES * len(ids))
        for i, text in enumerate(ids):
            first, second = inner.copy(), outer.copy()
            first.update(text.encode())
            second.update(first.digest())
            blinded[BLINDED_BYTES * i : BLINDED_BYTES * (i + 1)] = second.digest()
        return np.frombuffer(blinded, dtype=np.uint8).reshape(len(ids), BLINDED_BYTES)

    return blind


def blind_ids(ids: Sequence[str], secret: bytes, federation: str) -> npt.NDArray[np.uint8]:
    """Return the blinded form of each normalised id, (n, 32) bytes."""
    return id_blinder(secret, federation)(ids)


def read_secret(path: Path) -> bytes:
    """Return the secret that all clients share, without the newline at the end of its file."""
    command = f"(umask 077; openssl rand -hex 32 > {path.name})"
    hint = f"make one with `{command}` and give every client the same file"
    try:
        secret = path.read_bytes().rstrip(b"\r\n")
    except FileNotFoundError:
        raise ConfigError("the id secret is not there", hint=hint, where=str(path)) from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"cannot read the id secret: {reason}", hint=hint, where=str(path)
        ) from error
    if len(secret) < MIN_SECRET_BYTES:
        found = f"has {len(secret)} bytes" if secret else "is empty"
        raise ConfigError(
            f"the id secret {found}, at least {MIN_SECRET_BYTES} are needed",
            hint=hint,
            where=str(path),
        )
    require_private(path, ConfigError)
    return secret


def _refused(why: str, row: int | None, where: str) -> DataError:
    what = "the id" if row is None else f"the id of row {row}"
    hint = "give every row an id that is text or an integer"
    return DataError(f"{what} {why}", hint=hint, where=where)


def framed(text: str) -> bytes:
    """Return the text after its length, so that no two pairs of names give the same bytes."""
    encoded = text.encode()
    return len(encoded).to_bytes(4, "big") + encoded
