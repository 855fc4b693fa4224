"""What a metrics page is made of."""

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from laser_vfl.observability.metric_definitions import (
    OTHER,
    MetricDefinition,
    Owner,
    Refusals,
    availability,
    reason_of,
    registry_of,
)
from laser_vfl.observability.peer_traffic import MAX_SERIES, OTHERS, PeerTraffic
from laser_vfl.security.credentials import Credentials
from laser_vfl.transport.grpc_status import REFUSALS
from laser_vfl.transport.protocol import PROTOCOL_VERSION


def samples(*sources):
    text = generate_latest(registry_of(*sources)).decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("laser_vfl")
    }


def test_a_series_does_not_say_when_it_began():
    steps = MetricDefinition("laser_vfl_steps_total", "counter", "Steps").counter()
    times = MetricDefinition("laser_vfl_step_seconds", "histogram", "Times").histogram((0.1, 1.0))
    steps.inc(3)
    times.observe(0.5)
    assert samples(steps, times) == {
        ("laser_vfl_steps_total",): 3,
        ("laser_vfl_step_seconds_bucket", "0.1"): 0,
        ("laser_vfl_step_seconds_bucket", "1.0"): 1,
        ("laser_vfl_step_seconds_bucket", "+Inf"): 1,
        ("laser_vfl_step_seconds_count",): 1,
        ("laser_vfl_step_seconds_sum",): 0.5,
    }


def test_daemons_of_one_process_have_a_page_each():
    pages = [
        samples(
            Owner("client", name, "churn", Credentials(), PROTOCOL_VERSION),
            Refusals(REFUSALS).counter,
        )
        for name in ("bank", "shop")
    ]
    for page, name in zip(pages, ("bank", "shop"), strict=True):
        [info] = [key for key in page if key[0] == "laser_vfl_build_info"]
        assert name in info
        assert not any("certificate" in key[0] for key in page)  # there is none


def test_every_reason_is_there_from_the_start():
    page = samples(Refusals(REFUSALS).counter)
    reasons = [*map(reason_of, REFUSALS), OTHER]
    assert page == {("laser_vfl_refusals_total", reason): 0 for reason in reasons}
    assert {"identity", "limit_exceeded", "contract", "name_taken"} < set(reasons)


def test_a_refusal_is_counted_and_handed_on():
    told = []
    refusals = Refusals(REFUSALS)
    refused = refusals.counted(lambda *call: told.append(call))
    refused("spiffe://churn/client/shop", "/a/b", "IdentityError", "may not")
    refused("spiffe://churn/client/shop", "/a/b", "IdentityError", "may not")
    refused("somebody", "/a/b", "MadeUpByACaller", "?")
    page = samples(refusals.counter)
    assert page["laser_vfl_refusals_total", "identity"] == 2
    assert page["laser_vfl_refusals_total", OTHER] == 1
    assert len(page) == len(REFUSALS) + 1
    assert told[0] == ("spiffe://churn/client/shop", "/a/b", "IdentityError", "may not")
    assert len(told) == 3


def test_traffic_is_told_by_peer_purpose_and_direction():
    traffic = PeerTraffic()
    traffic.sent("shop", "training", 100)
    traffic.sent("shop", "training", 50)
    traffic.received("shop", "prediction", 7)
    assert samples(traffic) == {
        ("laser_vfl_peer_frames_total", "sent", "shop", "training"): 2,
        ("laser_vfl_peer_bytes_total", "sent", "shop", "training"): 150,
        ("laser_vfl_peer_frames_total", "received", "shop", "prediction"): 1,
        ("laser_vfl_peer_bytes_total", "received", "shop", "prediction"): 7,
    }


def test_peers_without_end_are_not_told_apart():
    traffic = PeerTraffic()
    for index in range(2 * MAX_SERIES):
        traffic.sent(f"peer-{index}", "training", 1)
    page = samples(traffic)
    assert len(page) == 2 * (MAX_SERIES + 1)
    assert page["laser_vfl_peer_bytes_total", "sent", OTHERS, "training"] == MAX_SERIES


def test_nobody_has_a_block_before_the_first_alignment():
    total, shares = availability(0, {"bank": 0})
    assert [sample.value for sample in (*total.samples, *shares.samples)] == [0, 0]
    total, shares = availability(8, {"bank": 6, "shop": 2})
    assert [sample.value for sample in shares.samples] == [0.75, 0.25]
