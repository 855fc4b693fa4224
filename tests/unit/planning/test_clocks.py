"""The clocks of a plan: one round trip, bytes by bandwidth, and who waits for whom."""

import pytest

from laser_vfl.planning.clocks import Clocks, Message, NetworkLine, Round

LINE = NetworkLine(bytes_per_s=1e6, rtt_s=0.02)


def sent(sender, receiver, num_bytes):
    return Message(sender, receiver, num_bytes, num_bytes, num_bytes)


def step(num_clients, num_bytes, clients=None):
    """Everybody has a head: representations to all others, then gradients."""
    clients = range(num_clients) if clients is None else clients
    messages = tuple(sent(a, b, num_bytes) for a in clients for b in clients if a != b)
    work = dict.fromkeys(clients, 0.5)
    return [Round(work, messages), Round({}, messages), Round(work)]


@pytest.mark.parametrize("num_clients", [2, 4])
def test_a_step_is_compute_a_round_trip_and_bytes_by_bandwidth(num_clients):
    clocks = Clocks(num_clients, LINE, compute_s=0.01)
    for _ in range(3):
        clocks.advance(step(num_clients, 5_000))
    bytes_each_way = 2 * (num_clients - 1) * 5_000
    assert clocks.seconds == pytest.approx(3 * (0.01 + 0.02 + bytes_each_way / 1e6))


def test_each_frame_costs_both_ends_something():
    clocks = Clocks(3, NetworkLine(), compute_s=0.01, frame_s=0.001)
    clocks.advance(step(3, 5_000))
    assert clocks.seconds == pytest.approx(0.01 + 2 * (2 + 2) * 0.001)


def test_steps_without_a_client_in_common_go_on_at_the_same_time():
    clocks = Clocks(4, LINE, compute_s=0.01)
    clocks.advance(step(4, 5_000, [0, 1]))
    alone = clocks.seconds
    clocks.advance(step(4, 5_000, [2, 3]))
    assert clocks.seconds == pytest.approx(alone)
    clocks.advance(step(4, 5_000, [1, 2]))
    assert clocks.seconds == pytest.approx(2 * alone)


def test_the_busiest_line_decides():
    """Three send to one: their lines are a third as busy as the one that all of it comes down."""
    clocks = Clocks(4, LINE)
    clocks.advance([Round({}, tuple(sent(k, 0, 10_000) for k in (1, 2, 3)))])
    assert clocks.seconds == pytest.approx(0.01 + 0.03)
    clocks = Clocks(4, LINE)
    clocks.advance([Round({}, tuple(sent(0, k, 10_000) for k in (1, 2, 3)))])
    assert clocks.seconds == pytest.approx(0.01 + 0.03)


def test_what_is_still_on_its_way_holds_up_the_next():
    clocks = Clocks(2, LINE)
    clocks.advance([Round({}, (sent(0, 1, 10_000),)), Round({}, (sent(0, 1, 10_000),))])
    assert clocks.seconds == pytest.approx(0.01 + 0.02)
