"""People who come after the training: they are aligned, and nobody else is again."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest
from align_tapped import Tapped, lists_handed_to

from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.data import POINT_BYTES
from tests.support.daemons.dry_runs import history, no_tracebacks
from tests.support.daemons.harness import Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop", "telco"]
NUM_SAMPLES = 50
KNOWN = [f"person-{i:05d}" for i in range(NUM_SAMPLES)]

Patterns = dict[str, str]
"""Whose blocks are used for each person."""

FIRST = {"bank": ["new-1", "new-2", "new-3"], "shop": ["new-1", "new-4"], "telco": ["new-1"]}
SECOND = {"bank": ["new-5"], "shop": ["new-2", "new-5"], "telco": ["new-2"]}


@pytest.fixture(scope="module")
def tapped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tapped]:
    with Site(tmp_path_factory.mktemp("unaligned"), None) as site, Tapped(site, ROSTER) as tapped:
        people = People(NUM_SAMPLES)
        for name in ROSTER:
            people.write(site.path, name, p_hold=1.0)
            _serve(site, name, [])
        tapped.start_coordinator({"epochs": 1})
        for name in ROSTER:
            _start(tapped, name)
        tapped.wait_served()
        yield tapped


@pytest.mark.core
def test_only_the_new_ones_travel(tapped: Tapped) -> None:
    _wait_until_known(tapped, dict.fromkeys(KNOWN, "bank,shop,telco"))
    for name in ROSTER:
        sizes = [len(points) // POINT_BYTES for _, points in lists_handed_to(tapped.taps[name])]
        assert sizes == [NUM_SAMPLES] * len(ROSTER), "everybody travels once, for all tables"
    before = _num_handed(tapped)
    _let_the_first_come(tapped)
    _wait_until_known(tapped, dict.fromkeys(KNOWN, "bank,shop,telco"))
    _check_lists(tapped, FIRST, before)


def test_who_was_new_before_may_be_new_to_others_now(tapped: Tapped) -> None:
    _let_the_first_come(tapped)
    before = _num_handed(tapped)
    for name, ids in SECOND.items():
        _serve(tapped.site, name, [*FIRST[name], *ids])
    _wait_until_known(
        tapped,
        {
            KNOWN[0]: "bank,shop,telco",
            "new-1": "bank,shop,telco",
            "new-2": "bank,shop,telco",
            "new-3": "bank",
            "new-5": "bank,shop",
        },
    )
    _check_lists(tapped, SECOND, before)


def test_names_outlive_a_restart(tapped: Tapped) -> None:
    site = tapped.site
    run = StateDirectory(site.path / "bank-state").published_run
    assert run is not None
    names = {
        name: PseudonymStore(StateDirectory(site.path / f"{name}-state")).read(run)
        for name in ROSTER
    }
    assert len({pseudonyms.id for pseudonyms in names.values() if pseudonyms}) == 1
    num_events = len(history(site))
    before = _num_handed(tapped)
    for name in ("bank", "shop"):
        tapped.clients[name].kill()
        _start(tapped, name)
    _wait_until_known(tapped, {"new-2": "bank,shop,telco", "new-5": "bank,shop"})
    assert _num_handed(tapped) == before
    assert len(history(site)) == num_events, "nothing was aligned again"


def test_somebody_whose_features_come_with_a_request(tapped: Tapped) -> None:
    """The block of bank alone at first, and that of shop once they are aligned."""
    with tapped.clients["bank"].predictor() as predictor:

        def blocks() -> str:
            answer = predictor.predict(["new-4"], features=np.ones((1, 5)))
            assert answer.errors == (None,)
            assert answer.block_names[0] in ("bank", "bank,shop")
            return answer.block_names[0]

        eventually(lambda: blocks() == "bank,shop", "new-4 is aligned", 30)


def test_a_restart_does_not_lift_the_quota(tapped: Tapped) -> None:
    """Bank's owner has had one id aligned, the most that is allowed within a day."""
    tapped.clients["bank"].kill()
    _start(tapped, "bank")
    with tapped.clients["bank"].predictor() as predictor:

        def knows() -> bool:
            answer = predictor.predict(["new-4"], features=np.ones((1, 5)))
            return answer.num_unaligned == 0 and answer.block_names == ["bank,shop"]

        eventually(knows, "bank asks shop about new-4 again", 30)
        answer = predictor.predict(["new-6"], features=np.ones((1, 5)))
    assert (answer.errors, answer.block_names) == ((None,), ["bank"])
    assert answer.num_unaligned == 1
    assert "1 new ids have been aligned for this application" in answer.unaligned_reason
    no_tracebacks(tapped.site)


def _start(tapped: Tapped, name: str) -> None:
    data = {"train": f"{name}_train.csv", "serve": f"{name}_serve.csv", "id": "id"}
    serving = {"align_requests": True, "align_requests_per_day": 1}
    tapped.start(name, data={**data, "label": "kind"}, serving=serving)


def _serve(site: Site, name: str, ids: list[str]) -> None:
    """Write a serving table: one who was trained with, and those who came."""
    trained = pl.read_csv(site.path / f"{name}_train.csv").head(1 + len(ids)).drop("kind")
    frame = trained.with_columns(pl.Series("id", [trained["id"][0], *ids]))
    new = site.path / f"{name}_new.csv"
    frame.write_csv(new)
    new.replace(site.path / f"{name}_serve.csv")


def _let_the_first_come(tapped: Tapped) -> None:
    for name, ids in FIRST.items():
        _serve(tapped.site, name, ids)
    _wait_until_known(tapped, {"new-1": "bank,shop,telco", "new-2": "bank", "new-3": "bank"})


def _wait_until_known(tapped: Tapped, expected: Patterns) -> None:
    """Wait until bank predicts everybody with the blocks of all who hold them."""
    ids = list(expected)
    with tapped.clients["bank"].predictor() as predictor:

        def is_so() -> bool:
            found = predictor.predict(ids)
            return dict(zip(ids, found.block_names, strict=True)) == expected

        eventually(is_so, f"bank predicts with {expected}", 30)


def _num_handed(tapped: Tapped) -> dict[str, int]:
    """How many lists each client was handed so far."""
    return {name: len(lists_handed_to(tapped.taps[name])) for name in ROSTER}


def _check_lists(tapped: Tapped, new: dict[str, list[str]], num_before: dict[str, int]) -> None:
    """Each list of unaligned ids has passed everybody once, with them and nobody else."""
    for name in ROSTER:
        handed = lists_handed_to(tapped.taps[name])[num_before[name] :]
        found: Counter[str] = Counter()
        for head, points in handed:
            found[head.owner] += len(points) // POINT_BYTES
        assert found == {owner: len(ids) for owner, ids in new.items()}, name
