"""Sample ids as points of Curve25519, which any number of clients blind one after another.

A point is told by its u coordinate alone, as in X25519. docs/privacy.md says why that is sound.
"""

import hashlib
import secrets
from collections.abc import Sequence

import numpy as np
from nacl._sodium import ffi, lib  # type: ignore[import-not-found]
from nacl.bindings import sodium_init

from laser_vfl.core.errors import ContractError
from laser_vfl.data.ids import framed

# Loops call `lib` itself, without a check and a copy of each point; its calls release the GIL.
sodium_init()  # which chooses the fastest code for this processor

POINT_BYTES = 32
SCALAR_BYTES = 32

_FIELD = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_A = 486662
"""Curve25519 is v^2 = u^3 + A u^2 + u."""


def new_scalar() -> bytes:
    """Draw a secret scalar as X25519 has them: 8 k, with k uniform from 2^251 to 2^252 - 1."""
    drawn = bytearray(secrets.token_bytes(SCALAR_BYTES))
    drawn[0] &= 0xF8
    drawn[31] = drawn[31] & 0x7F | 0x40
    return bytes(drawn)


def hash_to_curve(ids: Sequence[str], *, federation: str, run: str, table: str) -> bytes:
    """Return a point of the prime-order group for each normalised id, 32 bytes each.

    The same id gives the same point at every client, and another one in another federation, run
    or table. Nobody knows by which scalar one point leads to another.
    """
    names = framed(federation) + framed(run) + framed(table)
    prefix = hashlib.sha512(b"laser-vfl/point/1" + names)
    points = bytearray(POINT_BYTES * len(ids))
    to = ffi.from_buffer("unsigned char[]", points)
    first, second = ffi.new("unsigned char[32]"), ffi.new("unsigned char[32]")
    for i, text in enumerate(ids):
        hashed = prefix.copy()
        hashed.update(text.encode())
        digest = hashed.digest()
        lib.crypto_core_ed25519_from_uniform(first, digest)
        lib.crypto_core_ed25519_from_uniform(second, digest[32:])
        lib.crypto_core_ed25519_add(to + POINT_BYTES * i, first, second)
    return u_coordinates(points)


def u_coordinates(points: bytes | bytearray) -> bytes:
    """Return the u coordinates of points of edwards25519, none of which is the identity.

    Release 0.1.0 kept points in that form, too.
    """
    heights = [
        int.from_bytes(points[at : at + POINT_BYTES], "little") & (2**255 - 1)
        for at in range(0, len(points), POINT_BYTES)
    ]
    products, product = [], 1  # one inversion serves all: that of the product
    for y in heights:
        products.append(product)
        product = product * (1 - y) % _FIELD
    inverse = pow(product, -1, _FIELD)
    found = bytearray(len(points))
    for i in reversed(range(len(heights))):
        y = heights[i]
        u = (1 + y) * products[i] * inverse % _FIELD
        inverse = inverse * (1 - y) % _FIELD
        found[POINT_BYTES * i : POINT_BYTES * (i + 1)] = u.to_bytes(POINT_BYTES, "little")
    return bytes(found)


def clamped(scalar: bytes) -> bytes:
    """Return the scalar of X25519 that multiplies u coordinates as one of release 0.1.0 would.

    A u coordinate stands for a point and its negative, so a scalar for its negative as well.
    """
    k = int.from_bytes(scalar, "little") * pow(8, -1, _ORDER) % _ORDER
    k = max(k, _ORDER - k)
    if k >= 2**252:
        raise ValueError("the scalar is one of the few that X25519 does not have")
    return (8 * k).to_bytes(SCALAR_BYTES, "little")


def multiply(points: bytes | bytearray | memoryview, scalar: bytes) -> bytes:
    """Multiply each point by the scalar, in order.

    Points are taken in their one canonical form. Those of low order are refused: X25519 makes
    zero of them. Whatever else is sent becomes a point of prime order, of the curve or its twist.
    """
    if len(scalar) != SCALAR_BYTES:
        raise ValueError(f"a scalar has {SCALAR_BYTES} bytes, not {len(scalar)}")
    if scalar[0] & 7 or scalar[31] >> 6 != 1:
        raise ValueError("a scalar is a multiple of 8 from 2^254 to 2^255")
    given = ffi.from_buffer("unsigned char[]", points)
    size = len(given)
    if size % POINT_BYTES:
        raise ContractError(f"{size} bytes are no whole number of points of {POINT_BYTES} bytes")
    _check_canonical(ffi.buffer(given))
    products = bytearray(size)
    to = ffi.from_buffer("unsigned char[]", products)
    multiplied = lib.crypto_scalarmult
    for at in range(0, size, POINT_BYTES):
        if multiplied(to + at, scalar, given + at):
            raise ContractError(
                f"point {at // POINT_BYTES + 1} of {size // POINT_BYTES} is of low order"
            )
    return bytes(products)


def check_points(points: bytes | bytearray | memoryview, most: int) -> None:
    """Refuse what are no points of the curve; of many, look at `most` at random."""
    num_points = len(points) // POINT_BYTES
    places = range(num_points)
    for place in places if num_points <= most else secrets.SystemRandom().sample(places, most):
        u = int.from_bytes(points[POINT_BYTES * place : POINT_BYTES * (place + 1)], "little")
        if flaw := _flaw(u):
            raise ContractError(f"point {place + 1} of {num_points} {flaw}")


def _flaw(u: int) -> str:
    """Say why a number is not the u coordinate of a point of the curve, other than the identity."""
    if u >= _FIELD:
        return "is not in canonical form"
    if u == 0:
        return "is of low order"
    v_squared = u * (u * (u + _A) + 1) % _FIELD
    is_square = pow(v_squared, (_FIELD - 1) // 2, _FIELD) in (0, 1)
    return "" if is_square else "is not a point of the curve"


def _check_canonical(points: memoryview) -> None:
    """Refuse a u coordinate that is written as another number than the least that it can be."""
    words = np.frombuffer(points, dtype="<u8").reshape(-1, 4)
    is_large = words[:, 3] >= 2**63 - 1
    if not is_large.any():  # as good as always
        return
    for place in np.flatnonzero(is_large).tolist():
        if int.from_bytes(words[place].tobytes(), "little") >= _FIELD:
            raise ContractError(f"point {place + 1} of {len(words)} is not in canonical form")
