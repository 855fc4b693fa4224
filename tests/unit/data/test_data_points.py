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
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_noclamp,
)

from laser_vfl.core.alignment import align
from laser_vfl.core.errors import ContractError
from laser_vfl.core.subsets import mask_of
from laser_vfl.data import (
    POINT_BYTES,
    check_points,
    clamped,
    hash_to_curve,
    multiply,
    new_scalar,
    normalise_ids,
    u_coordinates,
)

ORDER = 2**252 + 27742317777372353535851937790883648493
TWIST_ORDER = 2**253 - 55484635554744707071703875581767296995
FIELD = 2**255 - 19
A = 486662
ORDER_8_POINTS = (
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
)


def hashed(*ids, federation="credit", run="r1", table="train"):
    return hash_to_curve(ids, federation=federation, run=run, table=table)


def points_of(joined):
    return [joined[at : at + POINT_BYTES] for at in range(0, len(joined), POINT_BYTES)]


def encoded(number):
    return number.to_bytes(32, "little")


def decoded(point):
    return int.from_bytes(point, "little")


def times(u, number):
    """Multiply by Montgomery's ladder; None is the point at infinity.

    Whether `u` is of the curve or of its twist makes no difference to it.
    """
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in bin(number)[2:]:
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
        plus, minus = x2 + z2, x2 - z2
        a, b = plus * (x3 - z3), minus * (x3 + z3)
        x3, z3 = (a + b) ** 2 % FIELD, u * (a - b) ** 2 % FIELD
        difference = plus * plus - minus * minus
        x2 = plus * plus * minus * minus % FIELD
        z2 = difference * (minus * minus + (A + 2) // 4 * difference) % FIELD
        if bit == "1":
            x2, z2, x3, z3 = x3, z3, x2, z2
    return x2 * pow(z2, -1, FIELD) % FIELD if z2 else None


def on_curve(u):
    return pow(u**3 + A * u * u + u, (FIELD - 1) // 2, FIELD) in (0, 1)


def of_order(order, *, is_on_curve):
    """Return the u coordinate of some point of this order."""
    candidates = (times(u, 8) for u in range(2, 100) if on_curve(u) == is_on_curve)
    return next(u for u in candidates if u is not None and times(u, order) is None)


def sum_and_difference(first, second):
    """Return the u coordinates of the sum and the difference of two points of the curve."""

    def v(u):
        squared = (u**3 + A * u * u + u) % FIELD
        root = pow(squared, (FIELD + 3) // 8, FIELD)
        if root * root % FIELD != squared:
            root = root * pow(2, (FIELD - 1) // 4, FIELD) % FIELD
        assert root * root % FIELD == squared
        return root

    slopes = ((v(second) - sign * v(first)) * pow(second - first, -1, FIELD) for sign in (1, -1))
    return {(slope * slope - A - first - second) % FIELD for slope in slopes}


def test_a_scalar_is_as_x25519_has_them_and_never_the_same():
    scalars = {new_scalar() for _ in range(200)}
    assert len(scalars) == 200
    for scalar in map(decoded, scalars):
        assert 2**254 <= scalar < 2**255
        assert scalar % 8 == 0
    assert len({scalar >> 246 for scalar in map(decoded, scalars)}) > 50
    assert len({scalar >> 3 & 255 for scalar in map(decoded, scalars)}) > 50


def test_a_point_is_the_sum_of_the_maps_of_both_halves():
    names = b"".join(len(n).to_bytes(4, "big") + n for n in (b"credit", b"r1", b"train"))
    digest = hashlib.sha512(b"laser-vfl/point/1" + names + "Zürich".encode()).digest()
    halves = [crypto_core_ed25519_from_uniform(half) for half in (digest[:32], digest[32:])]
    y = decoded(crypto_core_ed25519_add(*halves)) % 2**255
    assert decoded(hashed("Zürich")) == (1 + y) * pow(1 - y, -1, FIELD) % FIELD


def test_a_point_is_the_same_in_every_release_since_0_2():
    expected = "bb78a5e8776c40142468ac7a34d3ce9dba809bfca658bb9a4c45a99650522526"
    assert hashed("7").hex() == expected


def test_points_and_scalars_of_release_0_1_0_are_converted():
    old = [crypto_core_ed25519_from_uniform(os.urandom(32)) for _ in range(40)]
    new = u_coordinates(b"".join(old))
    for _ in range(10):
        scalar = crypto_core_ed25519_scalar_reduce(os.urandom(64))
        products = [crypto_scalarmult_ed25519_noclamp(scalar, point) for point in old]
        assert multiply(new, clamped(scalar)) == u_coordinates(b"".join(products))


def test_every_scalar_of_release_0_1_0_but_a_few_has_one_of_x25519():
    for number in (1, 2, 7, 9, ORDER // 2, ORDER // 2 + 1, ORDER - 9, ORDER - 1):
        scalar = decoded(clamped(encoded(number)))
        assert 2**254 <= scalar < 2**255
        assert scalar % 8 == 0
        assert scalar % ORDER in (number, ORDER - number)
    for k in (1, ORDER - 2**252, 2**252):
        with pytest.raises(ValueError, match="one of the few"):
            clamped(encoded(8 * k % ORDER))


def test_points_are_of_the_prime_order_group():
    points = points_of(hashed(*map(str, range(20))))
    assert len(set(points)) == 20
    for u in map(decoded, points):
        assert on_curve(u)
        assert times(u, ORDER) is None


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
    point, scalar = hashed("a"), new_scalar()
    assert decoded(multiply(point, scalar)) == times(decoded(point), decoded(scalar))
    assert decoded(multiply(point, scalar)) == times(decoded(point), decoded(scalar) % ORDER)


def test_blinding_commutes():
    points, a, b = hashed("x", "y", "z"), new_scalar(), new_scalar()
    both = multiply(multiply(points, a), b)
    assert both == multiply(multiply(points, b), a)
    assert not set(points_of(both)) & set(points_of(points))


def test_what_is_sent_of_low_order_beside_a_point_is_lost():
    """So a list can have different points that become one; the ring compares products."""
    u = decoded(hashed("a"))
    others = set().union(*(sum_and_difference(u, order_8) for order_8 in ORDER_8_POINTS))
    assert len(others | {u}) == 5
    for other in others:
        assert times(other, ORDER) is not None
        scalar = new_scalar()
        assert multiply(encoded(other), scalar) == multiply(hashed("a"), scalar)


def test_points_of_the_twist_stay_on_it_and_apart():
    """Their products tell nothing: the twist is a group of prime order, but for a factor of 4."""
    u = of_order(TWIST_ORDER, is_on_curve=False)
    scalar = new_scalar()
    product = decoded(multiply(encoded(u), scalar))
    assert product == times(u, decoded(scalar) % TWIST_ORDER)
    assert not on_curve(product)


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
    "infinity, and order 2": (bytes(32), "is of low order"),
    "order 4": (encoded(1), "is of low order"),
    "order 4 of the twist": (encoded(FIELD - 1), "is of low order"),
    "order 8": (encoded(ORDER_8_POINTS[0]), "is of low order"),
    "another of order 8": (encoded(ORDER_8_POINTS[1]), "is of low order"),
    "order 2 written as p": (encoded(FIELD), "is not in canonical form"),
    "order 4 written as p + 1": (encoded(FIELD + 1), "is not in canonical form"),
    "a point written as p + 9": (encoded(FIELD + 9), "is not in canonical form"),
    "a point with a sign": (encoded(9 + 2**255), "is not in canonical form"),
    "the largest": (b"\xff" * 32, "is not in canonical form"),
}


def test_the_refused_points_are_what_their_names_say():
    assert times(1, 4) is None
    assert times(FIELD - 1, 4) is None
    assert on_curve(1)
    assert not on_curve(FIELD - 1)
    for u in ORDER_8_POINTS:
        assert on_curve(u)
        assert times(u, 8) is None
        assert times(u, 4) is not None
    assert on_curve(9)


@pytest.mark.parametrize(("point", "flaw"), REFUSED.values(), ids=REFUSED)
def test_a_bad_point_is_refused_and_counted(point, flaw):
    good = hashed("a", "b")
    with pytest.raises(ContractError, match=f"^point 3 of 4 {flaw}"):
        multiply(good + point + good[:32], new_scalar())


def test_the_largest_points_are_taken():
    for u in range(FIELD - 60, FIELD - 1):
        assert len(multiply(encoded(u), new_scalar())) == POINT_BYTES


@settings(max_examples=100, deadline=None)
@example(bytes(32))
@example(encoded(FIELD - 2))
@given(st.binary(min_size=32, max_size=32))
def test_random_bytes_are_multiplied_or_refused(point):
    u, scalar = decoded(point), new_scalar()
    product = times(u, decoded(scalar)) if u < FIELD else None
    if product is not None:
        assert decoded(multiply(point, scalar)) == product
        return
    with pytest.raises(ContractError, match=r"^point 1 of 1 is "):
        multiply(point, scalar)


@pytest.mark.parametrize("size", [1, 31, 33, 65])
def test_part_of_a_point_is_refused(size):
    with pytest.raises(ContractError, match=f"^{size} bytes are no whole number of points"):
        multiply(os.urandom(size), new_scalar())


@pytest.mark.parametrize(
    "scalar",
    [b"", bytes(31), bytes(33), bytes(32), encoded(2**254 + 4), encoded(8), b"\xf8" * 32],
    ids=["none", "short", "long", "zero", "no multiple of 8", "small", "large"],
)
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
    bad = good[:64] + encoded(FIELD - 1) + good[96:]
    check_points(good, 5)
    check_points(b"", 5)
    with pytest.raises(ContractError, match="point 3 of 5 is not a point of the curve"):
        check_points(bad, 5)
    check_points(bad[:64] * 100, 3)
    with pytest.raises(ContractError, match="is not a point of the curve"):
        check_points(bad[64:96] * 100, 3)
    with pytest.raises(ContractError, match="point 1 of 1 is of low order"):
        check_points(bytes(32), 3)
    with pytest.raises(ContractError, match="point 1 of 1 is not in canonical form"):
        check_points(encoded(FIELD + 9), 3)
