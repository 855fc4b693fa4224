"""Sample ids as points of edwards25519, which any number of clients blind one after another."""

import hashlib
import secrets
from collections.abc import Sequence

from nacl._sodium import ffi, lib  # type: ignore[import-not-found]
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_is_valid_point,
    crypto_core_ed25519_scalar_reduce,
)
from nacl.exceptions import RuntimeError as SodiumError

from laser_vfl.core.errors import ContractError
from laser_vfl.data.ids import framed

# Loops call `lib` itself, without a check and a copy of each point; its calls release the GIL.
# The bindings serve the rest, and initialise libsodium.

POINT_BYTES = 32
SCALAR_BYTES = 32

_IDENTITY = bytes([1]) + bytes(31)
_FIELD = 2**255 - 19


def new_scalar() -> bytes:
    """Draw a secret scalar: uniform among the residues of the group's order, never zero."""
    while True:
        scalar = crypto_core_ed25519_scalar_reduce(secrets.token_bytes(2 * SCALAR_BYTES))
        if any(scalar):
            return scalar


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
    return bytes(points)


def multiply(points: bytes | bytearray | memoryview, scalar: bytes) -> bytes:
    """Multiply each point by the scalar, in order.

    Only points of the prime-order group other than the identity are taken, in their one canonical
    encoding. libsodium checks that as it multiplies.
    """
    if len(scalar) != SCALAR_BYTES:
        raise ValueError(f"a scalar has {SCALAR_BYTES} bytes, not {len(scalar)}")
    given = ffi.from_buffer("unsigned char[]", points)
    size = len(given)
    if size % POINT_BYTES:
        raise ContractError(f"{size} bytes are no whole number of points of {POINT_BYTES} bytes")
    products = bytearray(size)
    to = ffi.from_buffer("unsigned char[]", products)
    multiplied = lib.crypto_scalarmult_ed25519_noclamp
    for at in range(0, size, POINT_BYTES):
        if multiplied(to + at, scalar, given + at):
            flaw = _flaw(bytes(ffi.buffer(given + at, POINT_BYTES)))
            raise ContractError(f"point {at // POINT_BYTES + 1} of {size // POINT_BYTES} {flaw}")
    return bytes(products)


def check_points(points: bytes | bytearray | memoryview, most: int) -> None:
    """Refuse points that are not of the prime-order group; of many, look at `most` at random."""
    num_points = len(points) // POINT_BYTES
    places = range(num_points)
    for place in places if num_points <= most else secrets.SystemRandom().sample(places, most):
        point = bytes(points[POINT_BYTES * place : POINT_BYTES * (place + 1)])
        if not crypto_core_ed25519_is_valid_point(point):
            raise ContractError(f"point {place + 1} of {num_points} {_flaw(point)}")


def _flaw(point: bytes) -> str:
    """Say why a point was not multiplied."""
    if point == _IDENTITY:
        return "is the identity"
    if int.from_bytes(point, "little") % 2**255 >= _FIELD:
        return "is not in canonical form"
    multiple = point
    try:
        for _ in range(3):
            multiple = crypto_core_ed25519_add(multiple, multiple)
    except SodiumError:
        return "is not a point of the curve"
    if multiple == _IDENTITY:
        return "is of low order"
    if not crypto_core_ed25519_is_valid_point(point):
        return "is not of the prime-order group"
    raise ValueError("the scalar is zero in the order of the group")
