"""Points that come twice are found, however the list is cut into messages."""

from hypothesis import given, settings
from hypothesis import strategies as st

from laser_vfl.client.alignment.points_seen import BLOCK, PointsSeen, num_repeated
from laser_vfl.data import POINT_BYTES

FEW = st.builds(
    lambda first, second, rest: bytes([first]) * 8 + bytes([second]) * 8 + bytes([rest]) * 16,
    st.integers(0, 2),
    st.integers(0, 255),
    st.just(7),
)
"""Points of which many agree in the first eight bytes, and only there."""

lists = st.lists(st.one_of(FEW, st.binary(min_size=POINT_BYTES, max_size=POINT_BYTES)), max_size=20)


def seen(points, size=3):
    found = PointsSeen()
    for start in range(0, len(points), size):
        found.add(b"".join(points[start : start + size]))
    return found


@settings(max_examples=50)
@given(lists, st.integers(1, 5))
def test_all_repeats_are_counted_and_nothing_else(points, size):
    found = seen(points, size)
    assert found.num_points == len(points)
    assert found.num_repeated() == len(points) - len(set(points))
    assert found.num_repeated() == len(points) - len(set(points))
    assert num_repeated(bytearray(b"".join(points))) == len(points) - len(set(points))


def test_points_that_begin_alike_are_different():
    points = [bytes(8) + bytes([number]) + bytes(POINT_BYTES - 9) for number in range(50)]
    assert seen(points).num_repeated() == 0
    assert seen([*points, points[17]]).num_repeated() == 1
    assert seen([*points, points[17], points[17], points[3]]).num_repeated() == 3


def test_lists_longer_than_a_block():
    points = [number.to_bytes(POINT_BYTES, "little") for number in range(1, 2 * BLOCK + 5)]
    for size in (1000, BLOCK, 3 * BLOCK):
        assert seen(points, size).num_points == len(points)
        assert seen(points, size).num_repeated() == 0
        assert seen([*points, points[3], points[-1]], size).num_repeated() == 2


def test_nothing_has_come_twice_when_nothing_has_come():
    found = PointsSeen()
    found.add(b"")
    assert (found.num_points, found.num_repeated()) == (0, 0)
