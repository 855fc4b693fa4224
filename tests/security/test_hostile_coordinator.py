"""A coordinator that says what none of ours would: a client keeps its ports, and serves on."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from laser_vfl.coordinator.api.directive_messages import settings_message
from laser_vfl.core.errors import ExitCode
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.remote.operations import retrain
from laser_vfl.v1 import coordinator_pb2 as pb
from tests.support.attacks.attack_results import Results
from tests.support.attacks.hostile_coordinator import INCARNATION, hostile_coordinator
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site, eventually, free_address, health
from tests.support.data.people import People

SETTINGS = TrainingSettings(representation_dim=8, batch_size=16, epochs=1)

UNFIT: list[Mapping[str, Any]] = [
    {"representation_dim": 65_536, "batch_size": 1_000_000},
    {"representation_dim": 65_536, "batch_size": 8192},
    {"representation_dim": 2**32 - 1},
    {"method": "nonsense"},
    {"masked_gradients": True, "method": "local"},
    {"step_timeout_s": float("nan")},
]
ROSTERS = [[], ["shop"], ["bank", "bank"], ["bank", *(f"c{i}" for i in range(70))]]


def says(roster: list[str], changes: Mapping[str, Any]) -> pb.RegisterResponse:
    training = settings_message(SETTINGS)
    for key, value in changes.items():
        setattr(training, key, value)
    return pb.RegisterResponse(
        incarnation=INCARNATION, roster=roster, training=training, alignment="ecdh"
    )


LIES = [says(["bank"], changes) for changes in UNFIT] + [says(roster, {}) for roster in ROSTERS]


@pytest.mark.core
def test_nothing_that_a_coordinator_says_takes_a_clients_port(site: Site, results: Results) -> None:
    """First what is not allowed, then what is, another each time and as fast as it can."""
    site.wait_shorter({"WaitingTimes": {"after_failure_s": 0.05, "retry_s": 0.05}})
    federation = Federation(site, ["bank"], {"epochs": 1})
    bank = federation.clients["bank"]
    before = federation.status("bank")["model"]["run"]
    federation.coordinator.kill()

    keeps_to_rules = threading.Event()

    def lies(number: int) -> pb.RegisterResponse:
        if not keeps_to_rules.is_set():
            return LIES[number % len(LIES)]
        width = (8, 4096, 512, 2048)[number % 4]
        return says(["bank"], {"representation_dim": width, "batch_size": 4096})

    assert site.authority is not None
    with hostile_coordinator(site.address, site.authority, lies) as coordinator:
        with site.authority.channel(bank.wait_ready(), "bank", "bank") as channel:
            for number in range(1, len(LIES) + 1):
                eventually(lambda n=number: coordinator.num_registered > n, "it comes again")  # type: ignore[misc]
                assert health(channel) == "SERVING"
            assert coordinator.num_sessions == 0, "it took what it was told"
            keeps_to_rules.set()
        eventually(lambda: coordinator.num_sessions > 20, "it takes what is allowed")
        with site.authority.channel(bank.wait_ready(), "bank", "bank") as channel:
            for _ in range(20):
                assert health(channel) == "SERVING"
                number = coordinator.num_sessions
                eventually(lambda n=number: coordinator.num_sessions > n, "it comes again")  # type: ignore[misc]
    assert federation.status("bank")["model"]["run"] == before
    assert "training settings cannot be used: batch_size" in bank.stderr
    assert "roster is no list of clients" in bank.stderr
    assert "Traceback" not in bank.stderr
    assert "is a bug" not in bank.stderr
    results.note("coordinator's terms are none", "the port answers, the model is served")


@pytest.mark.core
def test_a_coordinator_does_not_publish_what_a_client_holds_back(
    site: Site, results: Results
) -> None:
    site.wait_shorter({"WaitingTimes": {"heartbeat_s": 0.05, "retry_s": 0.05}})
    holding = Federation(site, ["bank"], {"epochs": 1})
    first = holding.status("bank")["model"]["run"]
    assert holding.clients["bank"].terminate() == 0
    bank = holding.start("bank", publish="hold")
    bank.wait_for_served()
    retrain(site.address, site.operator_access())
    bank.wait_for("held back by this client")  # the run has ended
    second = holding.status("bank")["next_model"]["run"]
    holding.coordinator.kill()

    live = pb.Publication(live=[first, second])
    directives = [
        pb.Directive(gathering=pb.Gathering(), publication=live),
        pb.Directive(finished=pb.Finished(run=second), publication=live),
        pb.Directive(finished=pb.Finished(run=first), publication=live),
    ]

    def tells(heartbeat: pb.Heartbeat) -> pb.Directive:
        return directives[coordinator.num_heartbeats % len(directives)]

    assert site.authority is not None
    with hostile_coordinator(
        site.address, site.authority, lambda _: says(["bank"], {}), tells
    ) as coordinator:
        eventually(lambda: coordinator.num_heartbeats > 20, "it hears all of it, and goes on")
        status = holding.status("bank")
        assert (status["model"]["run"], status["next_model"]["run"]) == (first, second)
        assert not status["next_is_published"]
        with holding.predictor("bank") as predictor:
            assert predictor.predict(holding.ids).run == first
    assert "Traceback" not in bank.stderr
    assert "is a bug" not in bank.stderr
    results.note("coordinator publishes", "the old model is served")


def test_a_client_without_a_model_says_what_the_coordinator_demands(site: Site) -> None:
    People(30).write(site.path, "bank", p_hold=1.0)
    site.address = free_address()
    assert site.authority is not None
    with hostile_coordinator(site.address, site.authority, lambda number: LIES[0]):
        bank = site.start_client(site.client_config("bank"))
        assert bank.wait_exit() == ExitCode.STOPPED
    assert "training settings cannot be used: batch_size" in bank.stderr
    assert "Traceback" not in bank.stderr
