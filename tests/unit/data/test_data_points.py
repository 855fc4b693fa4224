"""Ids as points: hashing, blinding in any order, and what is refused."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_from_uniform,
    crypto_core_ed25519_is_valid_point,
)

from laser_vfl.core.alignment import align
from laser_vfl.core.errors import ContractError
from laser_vfl.core.subsets import mask_of
from laser_vfl.data import (
    POINT_BYTES,
    check_points,
    hash_to_curve,
    multiply,
    new_scalar,
    normalise_ids,
)

ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19
D = -121665 * pow(121666, -1, FIELD) % FIELD
IDENTITY = bytes([1]) + bytes(31)
ORDER_8 = bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a")


def hashed(*ids, federation="credit", run="r1", table="train"):
    return hash_to_curve(ids, federation=federation, run=run, table=table)


def points_of(joined):
    return [joined[at : at + POINT_BYTES] for at in range(0, len(joined), POINT_BYTES)]


def encoded(number):
    return number.to_bytes(32, "little")


def times(point, number):
    """Multiply by additions alone, whatever group the point is of."""
    product = IDENTITY
    for bit in bin(number)[2:]:
        product = crypto_core_ed25519_add(product, product)
        if bit == "1":
            product = crypto_core_ed25519_add(product, point)
    return product


def on_curve(y):
    x_squared = (y * y - 1) * pow(D * y * y + 1, -1, FIELD) % FIELD
    return pow(x_squared, (FIELD - 1) // 2, FIELD) in (0, 1)


def test_a_scalar_is_reduced_and_never_the_same():
    scalars = {new_scalar() for _ in range(200)}
    assert len(scalars) == 200
    assert all(0 < int.from_bytes(scalar, "little") < ORDER for scalar in scalars)


def test_a_scalar_of_zero_is_drawn_again(monkeypatch):
    draws = [encoded(ORDER) + bytes(32), encoded(5) + bytes(32)]
    monkeypatch.setattr("secrets.token_bytes", lambda size: draws.pop(0))
    assert new_scalar() == encoded(5)


def test_a_point_is_the_sum_of_the_maps_of_both_halves():
    names = b"".join(len(n).to_bytes(4, "big") + n for n in (b"credit", b"r1", b"train"))
    digest = hashlib.sha512(b"laser-vfl/point/1" + names + "Zürich".encode()).digest()
    halves = [crypto_core_ed25519_from_uniform(half) for half in (digest[:32], digest[32:])]
    assert hashed("Zürich") == crypto_core_ed25519_add(*halves)


def test_a_point_is_the_same_in_every_release():
    expected = "8718e11e6e48d9f8b022781a2f9e78c3277abab4c1a1c9aab7636bb58617c6c3"
    assert hashed("7").hex() == expected


def test_points_are_of_the_prime_order_group():
    points = points_of(hashed(*map(str, range(20))))
    assert len(set(points)) == 20
    for point in points:
        assert point != IDENTITY
        assert times(point, ORDER) == IDENTITY
        assert crypto_core_ed25519_is_valid_point(point)


def test_each_point_depends_on_its_own_id_alone():
    a, b, c = (hashed(text) for text in ("a", "b", "c"))
    assert hashed("c", "a", "b", "a") == c + a + b + a
    assert hashed() == b""


def test_federation_run_and_table_set_points_apart():
    names = ("federation", "run", "table")
    points = [hashed("7"), *(hashed("7", **{name: "other"}) for name in names)]
    assert len(set(points)) == 4


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c", "t"), ("a", "bc", "t")),
        (("f", "ab", "c"), ("f", "a", "bc")),
        (("f", "", "t"), ("f", "t", "")),
    ],
)
def test_names_are_framed(one, other):
    first, second = (
        hashed("7", federation=federation, run=run, table=table)
        for federation, run, table in (one, other)
    )
    assert first != second


def test_a_table_and_an_id_do_not_run_together():
    assert hashed("n7", table="trai") != hashed("7", table="train")


def test_unicode_ids():
    ids = normalise_ids(["Zu\u0308rich", "Z\u00fcrich", "株式会社", "🙂", "7", 7])
    points = points_of(hashed(*ids))
    assert points[0] == points[1]
    assert points[4] == points[5]
    assert len(set(points)) == 4


def test_multiplication_is_that_of_the_group():
    point = hashed("a")
    assert multiply(point, encoded(1)) == point
    for number in (2, 1000, ORDER - 1):
        assert multiply(point, encoded(number)) == times(point, number)


def test_blinding_commutes():
    points, a, b = hashed("x", "y", "z"), new_scalar(), new_scalar()
    both = multiply(multiply(points, a), b)
    assert both == multiply(multiply(points, b), a)
    assert not set(points_of(both)) & set(points_of(points))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_points_may_come_in_any_buffer(kind):
    points, scalar = hashed("x", "y"), new_scalar()
    assert multiply(kind(points), scalar) == multiply(points, scalar)
    assert multiply(kind(b""), scalar) == b""


def test_a_buffer_is_measured_in_bytes():
    points, scalar = hashed("x", "y"), new_scalar()
    assert multiply(memoryview(points).cast("Q"), scalar) == multiply(points, scalar)


def test_threads_do_not_share_buffers():
    ids, scalar = [str(i) for i in range(40)], new_scalar()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: multiply(hashed(*ids), scalar), range(8)))
    assert set(results) == {multiply(hashed(*ids), scalar)}


REFUSED = {
    "identity": (IDENTITY, "is the identity"),
    "identity with a sign": (IDENTITY[:31] + b"\x80", "is of low order"),
    "order 2": (encoded(FIELD - 1), "is of low order"),
    "order 4": (bytes(32), "is of low order"),
    "order 8": (ORDER_8, "is of low order"),
    "identity written as p + 1": (encoded(FIELD + 1), "is not in canonical form"),
    "order 4 written as p": (encoded(FIELD), "is not in canonical form"),
    "on the curve, written as p + 3": (encoded(FIELD + 3), "is not in canonical form"),
    "the largest": (b"\xff" * 32, "is not in canonical form"),
    "off the curve": (encoded(2), "is not a point of the curve"),
    "mixed order": (crypto_core_ed25519_add(hashed("a"), ORDER_8), "is not of the prime-order"),
}


def test_the_refused_points_are_what_their_names_say():
    assert times(ORDER_8, 8) == IDENTITY != times(ORDER_8, 4)
    assert on_curve(3)
    assert not on_curve(2)
    mixed, _ = REFUSED["mixed order"]
    assert times(mixed, ORDER) != IDENTITY == times(mixed, 8 * ORDER)


@pytest.mark.parametrize(("point", "flaw"), REFUSED.values(), ids=REFUSED)
def test_a_bad_point_is_refused_and_counted(point, flaw):
    good = hashed("a", "b")
    with pytest.raises(ContractError, match=f"^point 3 of 4 {flaw}"):
        multiply(good + point + good[:32], new_scalar())


@settings(max_examples=100, deadline=None)
@example(bytes(32))
@given(st.binary(min_size=32, max_size=32))
def test_random_bytes_are_refused_unless_they_are_a_point(point):
    y = int.from_bytes(point, "little") % 2**255
    if crypto_core_ed25519_is_valid_point(point):
        assert times(point, ORDER) == IDENTITY
        assert len(multiply(point, new_scalar())) == POINT_BYTES
        return
    with pytest.raises(ContractError, match=r"^point 1 of 1 is ") as caught:
        multiply(point, new_scalar())
    off_curve = y < FIELD and not on_curve(y)
    assert ("is not a point of the curve" in str(caught.value)) == off_curve


@pytest.mark.parametrize("size", [1, 31, 33, 65])
def test_part_of_a_point_is_refused(size):
    with pytest.raises(ContractError, match=f"^{size} bytes are no whole number of points"):
        multiply(os.urandom(size), new_scalar())


@pytest.mark.parametrize("scalar", [b"", bytes(31), bytes(33), bytes(32), encoded(ORDER)])
def test_a_scalar_that_is_none_is_our_own_mistake(scalar):
    with pytest.raises(ValueError, match="scalar"):
        multiply(hashed("a"), scalar)


some_ids = st.one_of(
    st.integers(-3, 12), st.integers(0, 12).map(str), st.sampled_from(["ä", "a\u0308", "Ж", "🙂"])
)
some_clients = st.lists(st.lists(some_ids, max_size=8), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@example([[]])
@example([["1"], [], [1, "2"], ["ä"]])
@given(some_clients)
def test_blinded_points_align_as_the_ids_do(values):
    lists = [list(dict.fromkeys(normalise_ids(ids))) for ids in values]
    scalars = [new_scalar() for _ in lists]
    blinded = []
    for k, ids in enumerate(lists):
        points = hashed(*ids)
        for scalar in scalars[k:] + scalars[:k]:
            points = multiply(points, scalar)
        blinded.append(np.frombuffer(points, dtype=np.uint8).reshape(-1, POINT_BYTES))

    holders = {}  # in the order of the first holder's list
    for k, ids in enumerate(lists):
        for text in ids:
            holders.setdefault(text, set()).add(k)
    by_mask = {}
    for text, clients in holders.items():
        by_mask.setdefault(mask_of(clients), []).append(text)
    expected = [(mask, by_mask[mask]) for mask in sorted(by_mask)]

    for k, told in enumerate(align(blinded)):
        assert [(g.observed, g.size) for g in told.groups] == [(m, len(ids)) for m, ids in expected]
        mine = {g: ids for g, (mask, ids) in enumerate(expected) if mask >> k & 1}
        assert {g: [lists[k][at] for at in rows] for g, rows in told.rows.items()} == mine


def test_some_points_of_a_long_list_are_checked_and_all_of_a_short_one():
    good = hash_to_curve([str(i) for i in range(5)], federation="f", run="r", table="t")
    bad = good[:64] + bytes([1]) + bytes(31) + good[96:]
    check_points(good, 5)
    check_points(b"", 5)
    with pytest.raises(ContractError, match="point 3 of 5 is the identity"):
        check_points(bad, 5)
    check_points(bad[:64] * 100, 3)
    with pytest.raises(ContractError, match="is the identity"):
        check_points(bad[64:96] * 100, 3)
