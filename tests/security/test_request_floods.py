"""An application that asks for more than its client has memory for: the others are answered."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import polars as pl
import pytest
from attacked_federation import TROUBLE, outcome

from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1.prediction_pb2_grpc import PredictionStub
from tests.support.attacks.attack_results import Results
from tests.support.attacks.attack_table import TOO_MUCH
from tests.support.daemons.harness import Authority, Process, Site
from tests.support.data.people import People

PREDICT = "/laser_vfl.v1.Prediction/Predict"
NUM_PEOPLE, NUM_COLUMNS, NUM_VALUES = 400, 150, 32
NUM_IDS, NUM_CALLS = 10_000, 30
BUDGET_BYTES = 1_000_000_000
ANSWERED_WITHIN_S = 30.0
FLOOD_LASTS_S = 120.0

WORST = pb.PredictRequest(
    ids=[str(number) for number in range(NUM_IDS)],
    columns=pb.FeatureColumns(
        columns=[
            pb.FeatureColumn(name=f"c{column}", values=[""] * NUM_IDS)
            for column in range(NUM_COLUMNS)
        ]
    ),
).SerializeToString()
"""3 MB, which become a block of 10,000 times 4,950 numbers."""


def _write_wide(directory: Path, name: str) -> None:
    """Write a table of categorical columns, each with as many values as an encoding keeps."""
    rng = np.random.default_rng(0)
    values = np.array([f"v{number:02d}" for number in range(NUM_VALUES)])
    frame = pl.DataFrame(
        {
            "id": [f"person-{number:05d}" for number in range(NUM_PEOPLE)],
            "kind": rng.choice(["red", "green"], NUM_PEOPLE),
            **{
                f"c{column}": rng.permutation(np.resize(values, NUM_PEOPLE))
                for column in range(NUM_COLUMNS)
            },
        }
    )
    frame.write_csv(directory / f"{name}_train.csv")


@pytest.mark.timeout(400)
def test_a_flood_of_large_requests_stays_within_the_budget(
    site: Site, authority: Authority, results: Results
) -> None:
    """Thirty times the worst request at once, while another application asks for its own."""
    _write_wide(site.path, "bank")
    People(NUM_PEOPLE).write(site.path, "shop", p_hold=1.0)
    site.start_coordinator(site.coordinator_config(["bank", "shop"], {"epochs": 1}))
    config = site.client_config("bank", serving={"memory_mb": BUDGET_BYTES // 1_000_000})
    bank = site.start_client(config)
    site.start_client(site.client_config("shop"))
    bank.wait_for_served()
    address = bank.wait_predict()
    with authority.channel(address, "bank", "bank/web") as channel:
        stub = PredictionStub(channel)
        request = pb.PredictRequest(ids=[f"person-{n:05d}" for n in range(5)], deadline_s=5.0)
        usual = stub.Predict(request, timeout=ANSWERED_WITHIN_S).class_places
        before = _rss(bank)
        flood = _Flood(authority, address)
        times = []
        while flood.is_on or not times:
            started = time.monotonic()
            answer = stub.Predict(request, timeout=ANSWERED_WITHIN_S)
            times.append(time.monotonic() - started)
            assert not answer.errors
            assert answer.class_places == usual
            flood.wait_s(0.05)
    ends, grown = flood.ends(), _peak(bank) - before
    print(f"grown by {grown / 1e6:.0f} MB, slowest {max(times):.2f} s of {len(times)}, {ends}")
    assert grown < BUDGET_BYTES, f"bank has grown by {grown / 1e6:.0f} MB"
    assert set(ends) == {"OK", TOO_MUCH}
    assert not [word for word in TROUBLE if word in bank.stderr]
    results.note("flood of large requests", "less than 1 GB, and others are answered")


class _Flood:
    """All of the worst requests at once, by one application over one connection for each."""

    def __init__(self, authority: Authority, address: str) -> None:
        self._over = threading.Event()
        self._ends: Counter[str] = Counter()
        self._authority, self._address = authority, address
        authority.issue("bank/crm")  # before all of them do
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    @property
    def is_on(self) -> bool:
        return not self._over.is_set()

    def wait_s(self, seconds: float) -> None:
        """Wait, and not longer than until all requests have ended."""
        self._over.wait(seconds)

    def ends(self) -> Counter[str]:
        """Return how often the requests ended in which way."""
        self._thread.join()
        return self._ends

    def _ask(self) -> None:
        with ThreadPoolExecutor(NUM_CALLS) as threads:
            self._ends.update(threads.map(self._ask_once, range(NUM_CALLS)))
        self._over.set()

    def _ask_once(self, _: int) -> str:
        with self._authority.channel(self._address, "bank", "bank/crm") as channel:
            return _end(channel)


def _end(channel: grpc.Channel) -> str:
    return outcome(lambda: channel.unary_unary(PREDICT)(WORST, timeout=FLOOD_LASTS_S))


def _rss(process: Process) -> int:
    return _memory(process, "VmRSS")


def _peak(process: Process) -> int:
    return _memory(process, "VmHWM")


def _memory(process: Process, which: str) -> int:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(which))
