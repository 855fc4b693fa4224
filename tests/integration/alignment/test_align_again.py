"""The next run aligns those alone who have come since; with the same tables nobody is blinded."""

import shutil
from collections.abc import Iterator
from contextlib import suppress

import polars as pl
import pytest
from align_tapped import Tapped, lists_handed_to

from laser_vfl.core.errors import NotReady
from laser_vfl.data import POINT_BYTES
from laser_vfl.remote.operations import retrain
from tests.support.daemons.dry_runs import no_tracebacks
from tests.support.daemons.harness import Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop"]
NUM_SAMPLES = 40
KNOWN = [f"person-{i:05d}" for i in range(NUM_SAMPLES)]


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tapped]:
    with Site(tmp_path_factory.mktemp("again"), None) as site, Tapped(site, ROSTER) as tapped:
        people = People(NUM_SAMPLES)
        for name in ROSTER:
            people.write(site.path, name, p_hold=1.0)
        tapped.start_coordinator({"epochs": 1})
        tapped.start_all()
        tapped.wait_served()
        _wait_until_predicted(tapped)
        yield tapped
        no_tracebacks(site)


def _handed(tapped: Tapped) -> dict[str, list[int]]:
    """How many points each list has that a client was handed so far."""
    return {
        name: [len(points) // POINT_BYTES for _, points in lists_handed_to(tapped.taps[name])]
        for name in ROSTER
    }


def _train_again(tapped: Tapped, num_runs: int) -> None:
    retrain(tapped.site.address, tapped.site.operator_access())
    tapped.site.wait_for_event("finished", times=num_runs)
    _wait_until_predicted(tapped)


def _wait_until_predicted(tapped: Tapped) -> None:
    with tapped.clients["bank"].predictor() as predictor:

        def is_so() -> bool:
            with suppress(NotReady):
                return predictor.predict(KNOWN).block_names.count("bank,shop") == NUM_SAMPLES
            return False

        eventually(is_so, "bank predicts with all blocks", 60)


def test_with_the_same_tables_no_list_travels(tapped: Tapped) -> None:
    first = _handed(tapped)
    assert first == dict.fromkeys(ROSTER, [NUM_SAMPLES] * 2)
    _train_again(tapped, 2)
    assert _handed(tapped) == first
    told = f"{NUM_SAMPLES} of {NUM_SAMPLES} people have been aligned before"
    assert told in tapped.clients["shop"].stderr


def test_who_has_come_since_travels_alone(tapped: Tapped) -> None:
    before = _handed(tapped)
    table = next(tapped.site.path.glob("shop*.csv"))
    frame = pl.read_csv(table)
    more = frame.head(3).with_columns(id=pl.lit("new-") + pl.col("id"))
    pl.concat([frame, more]).write_csv(f"{table}.new")
    shutil.move(f"{table}.new", table)
    _train_again(tapped, 3)
    assert _handed(tapped) == {name: [*sizes, 3] for name, sizes in before.items()}


def test_a_client_without_its_state_is_aligned_anew_with_all(tapped: Tapped) -> None:
    before = _handed(tapped)
    tapped.clients["bank"].kill()
    shutil.rmtree(tapped.site.path / "bank-state")
    tapped.start("bank")
    _train_again(tapped, 4)
    sizes = {name: found[len(before[name]) :] for name, found in _handed(tapped).items()}
    assert sizes == {name: sizes[name] for name in ROSTER}
    assert all(sorted(found) == [NUM_SAMPLES, NUM_SAMPLES + 3] for found in sizes.values())
