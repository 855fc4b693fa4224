"""Rates, latencies and shares: what people write, and what is refused with a hint."""

import pytest

from laser_vfl.cli.option_parsers import parse_bandwidth, parse_latency, parse_names, parse_shares
from laser_vfl.core.errors import ConfigError

ROSTER = ["bank", "shop", "telco"]


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100mbit", 12.5e6),
        ("100 Mbit/s", 12.5e6),
        ("1gbit", 125e6),
        ("2.5Gbit", 312.5e6),
        ("64kbit", 8e3),
        ("12.5MB/s", 12.5e6),
        ("500kB/s", 5e5),
    ],
)
def test_bandwidth(text, rate):
    assert parse_bandwidth(text, "--bandwidth") == pytest.approx(rate)


@pytest.mark.parametrize(
    "text", ["", "100", "mbit", "100mbps", "100 Mb", "-1mbit", "1e3mbit", "100mb/s", "12.5MB"]
)
def test_bandwidth_that_could_mean_anything_is_refused(text):
    with pytest.raises(ConfigError, match="is no bandwidth; write bits as 100mbit"):
        parse_bandwidth(text, "--bandwidth")


@pytest.mark.parametrize("text", ["0mbit", "1bit", "2000gbit"])
def test_bandwidth_out_of_range(text):
    with pytest.raises(ConfigError, match="out of range"):
        parse_bandwidth(text, "--bandwidth")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20ms", 0.02), ("0.02s", 0.02), ("500us", 0.0005), ("0", 0.0), ("0ms", 0.0), (" 1 s", 1.0)],
)
def test_latency(text, seconds):
    assert parse_latency(text, "--rtt") == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "20", "ms", "-1ms", "fast", "20 min", "61s"])
def test_latency_is_refused(text):
    with pytest.raises(ConfigError, match="--rtt"):
        parse_latency(text, "--rtt")


def test_shares():
    assert parse_shares("0.3", ROSTER, "--p-missing") == [0.3, 0.3, 0.3]
    assert parse_shares("shop=0.5, bank=.1", ROSTER, "--p-missing") == [0.1, 0.5, 0.0]


@pytest.mark.parametrize("text", ["1", "-0.1", "much", "bank=1.5", "firm=0.1", "bank=0,bank=0"])
def test_shares_are_refused(text):
    with pytest.raises(ConfigError, match="--p-missing"):
        parse_shares(text, ROSTER, "--p-missing")


def test_names_come_in_roster_order():
    assert parse_names("telco, bank", ROSTER, "--labels") == ["bank", "telco"]
    with pytest.raises(ConfigError, match='"firm" is not in the roster; it has bank, shop, telco'):
        parse_names("bank,firm", ROSTER, "--labels")
