"""A client that dies or falls silent in a ring: the others begin anew, and say so."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from align_tapped import Tapped

from laser_vfl.core.errors import LaserError
from laser_vfl.remote import operations
from laser_vfl.remote.operations import approve_run
from tests.support.daemons.dry_runs import (
    counts,
    dry_run,
    history,
    no_tracebacks,
    wait_for_activity,
)
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop", "telco"]
PRESENT = ["bank", "shop"]
NUM_SAMPLES = 60


@pytest.fixture
def tapped(plain_site: Site) -> Iterator[Tapped]:
    """Three clients; whatever is sent to telco can be held up, and so the ring."""
    people = People(NUM_SAMPLES)
    for name in ROSTER:
        people.write(plain_site.path, name, p_hold=1.0)
    with Tapped(plain_site, ROSTER) as tapped:
        yield tapped
        no_tracebacks(plain_site)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_is_aligned_anew_among_those_present(fault: signal.Signals, tapped: Tapped) -> None:
    site, tap = tapped.site, tapped.taps["telco"]
    rule = {"quorum": 2, "after_s": 3.0}
    coordinator = tapped.start_coordinator({"epochs": 1}, start=rule, heartbeat_timeout_s=3.0)
    tap.is_open.clear()
    tapped.start_all()
    assert tap.held.wait(30), "the ring has not come to telco"
    telco = tapped.clients["telco"]
    telco.signal(fault)

    for name in PRESENT:
        tapped.clients[name].wait_for_served()
    assert _what_happened(site) == [
        ("aligning", ROSTER),
        ("given up", ROSTER),
        ("aligning", PRESENT),
        ("aligned", PRESENT),
        ("started", PRESENT),
        ("finished", PRESENT),
    ]
    assert "lost telco" in history(site)[1]["reason"]
    assert history(site)[2]["reason"] == "without telco"
    coordinator.wait_for("lost telco in the alignment")
    for name in PRESENT:
        tapped.clients[name].wait_for("has ended: ")
        tapped.clients[name].wait_for("with bank, shop (run)")

    # It comes back, and the next run has everybody. Somebody has to ask for that.
    tap.is_open.set()
    telco.kill()
    back = tapped.start("telco")
    back.wait_for("a run does not start by itself")
    approve_run(site.address, site.operator_access(), "telco")
    back.wait_for_served()
    assert _what_happened(site)[6:] == [
        (event, ROSTER) for event in ("aligning", "aligned", "started", "finished")
    ]


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_dry_run_is_done_anew_among_those_present(fault: signal.Signals, tapped: Tapped) -> None:
    site, tap = tapped.site, tapped.taps["telco"]
    tapped.start_coordinator({"epochs": 1}, heartbeat_timeout_s=3.0)
    tapped.start_all()
    tapped.wait_served()
    wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))
    tap.held.clear()
    tap.is_open.clear()
    with ThreadPoolExecutor(1) as threads:
        asked = _ask(threads, tapped.clients["shop"])
        assert tap.held.wait(30), "the ring has not come to telco"
        tapped.clients["telco"].signal(fault)
        found = asked.result()
    tapped.clients["telco"].kill()
    assert (found["members"], found["absent"]) == (PRESENT, ["telco"])
    assert counts(found, "train") == {frozenset(PRESENT): NUM_SAMPLES}
    assert [event for event, _ in _what_happened(site)[4:]] == [
        "aligning",
        "given up",
        "aligning",
        "aligned",
    ]


def test_a_dry_run_that_timed_out_ends_at_all_daemons(tapped: Tapped) -> None:
    site, tap = tapped.site, tapped.taps["telco"]
    tapped.start_coordinator({"epochs": 1})
    tapped.start_all()
    tapped.wait_served()
    wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))
    tap.held.clear()
    tap.is_open.clear()
    assert "did not answer" in _too_late(tapped.clients["shop"])
    assert tap.held.is_set(), "the ring has not come to telco"
    eventually(lambda: len(history(site)) == 6, "the dry run is given up")
    assert [event for event, _ in _what_happened(site)[4:]] == ["aligning", "given up"]
    assert "shop does not wait for it any more" in history(site)[-1]["reason"]
    wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))
    tap.is_open.set()
    found = dry_run(tapped.clients["bank"], 60.0)
    assert found["members"] == ROSTER


@pytest.mark.parametrize("has_trained", [False, True], ids=["the first run", "a later one"])
def test_a_run_that_is_cancelled_ends_at_all_daemons(has_trained: bool, tapped: Tapped) -> None:
    site, tap = tapped.site, tapped.taps["telco"]
    coordinator = tapped.start_coordinator({"epochs": 1})
    if has_trained:
        tapped.start_all()
        tapped.wait_served()
        wait_for_activity(site, dict.fromkeys(ROSTER, "idle"))
        for name in ROSTER:  # who comes anew has to be aligned in the ring
            _add_somebody(site, name)
        before = [len(_counted(site, name)) for name in ROSTER]
        tap.held.clear()
        tap.is_open.clear()
        operations.retrain(coordinator.wait_ready(), site.operator_access())
    else:
        before = [0] * len(ROSTER)
        tap.is_open.clear()
        tapped.start_all()
    assert tap.held.wait(30), "the ring has not come to telco"
    run = operations.cancel_run(coordinator.wait_ready(), site.operator_access())
    assert _what_happened(site)[-2:] == [("aligning", ROSTER), ("given up", ROSTER)]
    for name in ROSTER:
        tapped.clients[name].wait_for(f"alignment {run} has failed", times=1)
    eventually(
        lambda: [len(_counted(site, name)) for name in ROSTER] == before, "nobody is charged"
    )
    status = operations.coordinator_status(coordinator.wait_ready(), site.operator_access())
    assert (status["wanted"], status["training"], status["last_run"]) == (False, False, run)
    assert status["requests"] == ([] if has_trained else ROSTER)
    assert all(not client["problem"] for client in status["clients"])

    tap.is_open.set()
    operations.retrain(coordinator.wait_ready(), site.operator_access())
    eventually(lambda: _what_happened(site)[-1] == ("finished", ROSTER), "another run is trained")


def _counted(site: Site, name: str) -> list[float]:
    """Return the alignments that a client counts; those given back are negative."""
    ledger = site.path / f"{name}-state" / "alignments.json"
    times = json.loads(ledger.read_text()) if ledger.exists() else []
    return [moment for moment in times if moment > 0]


def _add_somebody(site: Site, name: str) -> None:
    path = site.path / f"{name}_train.csv"
    lines = path.read_text().splitlines()
    new = ",".join(["nobody-yet", *lines[1].split(",")[1:]])
    path.write_text("\n".join([*lines, new]) + "\n")


def test_one_who_is_lost_for_good_is_waited_for_where_everybody_is_needed(tapped: Tapped) -> None:
    """Without a rule that lets fewer start, the others wait, say for whom, and go on with it."""
    site, tap = tapped.site, tapped.taps["telco"]
    tapped.start_coordinator({"epochs": 1})
    tap.is_open.clear()
    tapped.start_all()
    assert tap.held.wait(30), "the ring has not come to telco"
    tapped.clients["telco"].kill()
    for name in PRESENT:
        tapped.clients[name].wait_for("has ended: ")
        tapped.clients[name].wait_for("waiting for telco")
    tap.is_open.set()
    tapped.start("telco")
    tapped.wait_served()
    assert _what_happened(site)[2:] == [
        (event, ROSTER) for event in ("aligning", "aligned", "started", "finished")
    ]


def _too_late(client: Process) -> str:
    """Ask for a dry run, and wait for it no longer than it takes to begin."""
    with pytest.raises(LaserError) as error:
        dry_run(client, 5.0)
    return str(error.value)


def _ask(threads: ThreadPoolExecutor, client: Process) -> Future[dict[str, Any]]:
    return threads.submit(dry_run, client, 60.0)


def _what_happened(site: Site) -> list[tuple[str, list[str]]]:
    return [(line["event"], line["members"]) for line in history(site)]
