"""Pseudonyms on disk, also those that release 0.1.0 has written."""

import csv
import tarfile
from pathlib import Path

import numpy as np
import pytest

from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.pseudonym_store import PseudonymStore
from laser_vfl.data import hash_to_curve, multiply

ARCHIVE = Path(__file__).parents[3] / "integration/daemons/earlier_release/state-0.1.0.tar.xz"
ROSTER = ("bank", "shop", "telco")


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Return what release 0.1.0 has left at three clients."""
    directory = tmp_path_factory.mktemp("left")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(directory, filter="data")
    return directory


def test_unaligned_ids_meet_the_people_whom_release_0_1_0_has_aligned(left):
    """Its points of ed25519 and its scalars are those of X25519 once they are read."""
    stores = {name: PseudonymStore(StateDirectory(left / f"{name}-state")) for name in ROSTER}
    runs = StateDirectory(left / "bank-state").model_runs()
    assert len(runs) == 2
    for run in runs:
        found = {name: stores[name].read(run) for name in ROSTER}
        for name in ROSTER:
            rows = csv.DictReader((left / f"{name}_train.csv").read_text().splitlines())
            ids = [row["id"] for row in rows]
            points = hash_to_curve(ids, federation="trial", run=run, table="serve")
            for pseudonyms in found.values():
                points = multiply(points, pseudonyms.scalar)
            known = {bytes(point) for point in found[name].points[found[name].known]}
            mine = {points[at : at + 32] for at in range(0, len(points), 32)}
            assert len(mine & known) >= len(ids) - 3, "all but those who are forgotten"


def test_places_of_forgotten_people_stay_empty(left):
    store = PseudonymStore(StateDirectory(left / "bank-state"))
    run = StateDirectory(left / "bank-state").model_runs()[0]
    before = store.read(run).known
    assert not before.all()
    gone = np.zeros(len(before), dtype=bool)
    gone[3] = True
    store.purge(run, lambda digests: gone)
    again = store.read(run)
    assert again.known.tolist() == (before & ~gone).tolist()
    assert not again.points[~again.known].any()
