"""A member that is no daemon: it keeps to the protocol as far as its attack goes, and then not."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from attacked_federation import outcome

from laser_vfl.client.tables.pseudonym_store import FILE_NAME as PSEUDONYMS
from laser_vfl.remote.operations import retrain
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.attacks.alignment_stand_in import StandIn, Trick
from tests.support.attacks.attack_results import Results
from tests.support.daemons.harness import Process, Site, eventually
from tests.support.data.people import People

ROSTER = ["bank", "shop"]
IDS = [f"person-{i:05d}" for i in range(20)]
NUM_ROUNDS = 3
MAX_TOTAL_PEOPLE = 1000
SHORT_WAITS = {
    "ring_grace_s": 0.5,
    "ring_stall_s": 3.0,
    "ring_connect_s": 0.5,
    "retry_s": 0.05,
    "after_failure_s": 0.1,
}
ALONE = {"quorum": 1, "after_s": 0.5}


def start(site: Site, rule: dict[str, float] | None = ALONE, **more: Any) -> Process:
    """Start a coordinator of two, and bank; shop is what a test makes of it."""
    site.wait_shorter({"WaitingTimes": SHORT_WAITS})
    People(60).write(site.path, "bank", p_hold=1.0)
    config = site.coordinator_config(ROSTER, {"epochs": 1}, start=rule)
    site.start_coordinator({**config, "max_total_people": MAX_TOTAL_PEOPLE})
    return site.start_client(site.client_config("bank", alignments_per_day=1000, **more))


@pytest.fixture(scope="module")
def bank(shared_site: Site) -> Process:
    """Serves a model that it has trained alone."""
    client = start(shared_site)
    client.wait_for_served()
    return client


def too_many(request: pb.CommitRequest) -> None:
    request.num_points = MAX_TOTAL_PEOPLE - 10


@pytest.mark.core
def test_who_brings_too_many_is_refused(bank: Process, shared_site: Site, results: Results) -> None:
    """Less than `max_people` of anybody, but more than the coordinator has room for in all."""
    site = shared_site
    with StandIn(site, "shop", IDS, Trick(committed=too_many)) as shop:
        retrain(site.address, site.operator_access())
        eventually(lambda: shop.refusals, "its commitment is answered")
    results.note("brings too many", outcome(_raising(shop.refusals[0])))
    _check_unharmed(bank)


@pytest.mark.core
def test_who_aligns_and_leaves_has_no_scalars_pile_up(site: Site, results: Results) -> None:
    """Bank has no model yet, and all have to be there, so no run ever starts."""
    bank = start(site, rule=None)
    models = site.path / "bank-state" / "models"
    for _ in range(NUM_ROUNDS):
        with StandIn(site, "shop", IDS) as shop:
            eventually(lambda shop=shop: shop.outcomes, "all have the outcome")  # type: ignore[misc]
            scalar = models / shop.outcomes[0] / PSEUDONYMS
            eventually(scalar.exists, "bank has kept what it needs for the run")
            shop.leave()
            eventually(lambda scalar=scalar: not scalar.parent.exists(), "it is gone")  # type: ignore[misc]
    found = list(models.iterdir())
    results.note("aligns and leaves", f"{found or 'no scalar of a failed run stays'}")
    assert bank.alive
    assert "Traceback" not in site.report()


@pytest.mark.core
def test_nobody_dials_its_own_machine_for_another(site: Site, results: Results) -> None:
    """Bank says that it is elsewhere, so what listens on its loopback is no member."""
    with _program() as (address, callers):
        bank = start(site, advertise="10.9.8.7:7001")
        with StandIn(site, "shop", IDS, address=address):
            bank.wait_for("it is not dialled there")
            site.wait_for_event("refused")
        assert not callers
        results.note("address on the peers' machine", "not dialled")
    assert "Traceback" not in site.report()


def _check_unharmed(bank: Process) -> None:
    assert bank.alive
    assert "Traceback" not in bank.stderr
    with bank.predictor() as predictor:
        assert not any(predictor.predict(IDS).errors)


def _raising(error: Exception) -> Callable[[], None]:
    def call() -> None:
        raise error

    return call


@contextmanager
def _program() -> Iterator[tuple[str, list[Any]]]:
    """Something that listens on this machine, and notes who connects to it."""
    callers: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    callers.append(listening.accept())

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}", callers
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection, _ in callers:
                connection.close()
