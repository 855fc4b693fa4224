"""An organisation holds a new model back: everybody goes on with the old run until all publish."""

import json
from typing import Any

import pytest

from laser_vfl.remote.operations import coordinator_status, retrain
from laser_vfl.v1 import peer_pb2 as pb
from laser_vfl.v1.peer_pb2_grpc import PeerStub
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Process, Site, eventually

ROSTER = ["bank", "shop", "telco"]
HOLDER = "shop"


class Holding(Federation):
    """Three clients that have trained and serve; from then on one holds new models back."""

    policy = "auto"

    def __init__(self, site: Site) -> None:
        super().__init__(site, ROSTER, {})
        assert self.clients[HOLDER].terminate() == 0
        self.policy = "hold"
        self.start(HOLDER)
        self.wait_whole()

    def start(self, name: str) -> Process:
        self._more["publish"] = self.policy if name == HOLDER else "auto"
        return super().start(name)

    def check_answers(self, run: str) -> None:
        """Every client predicts with the model of this run and with all blocks."""
        for name in ROSTER:
            with self.predictor(name) as predictor:
                answer = predictor.predict(self.ids)
            assert not any(answer.errors)
            assert answer.run == run, f"{name} answers with another run"
            assert answer.blocks.all(), f"{name} lacks blocks: {answer.peers}"

    def models_on_disk(self) -> list[list[str]]:
        return [
            sorted(path.name for path in (self.site.path / f"{name}-state/models").iterdir())
            for name in ROSTER
        ]

    def run_for_peers(self, run: str) -> str:
        """The run that the holder answers a peer with who asks for this one."""
        address = self.clients[HOLDER].wait_ready()
        assert self.site.authority is not None
        with self.site.authority.channel(address, HOLDER, "bank") as channel:
            request = pb.RepresentRequest(run=run, sender="bank")
            (answer,) = PeerStub(channel).Represent(iter([request]), timeout=10)
        return answer.other_run or run

    def publish(self, run: str, exit_code: int = 0) -> Process:
        words = ["runs", "publish", run, "--config", f"{HOLDER}.yaml", "--timeout", "20s"]
        asked = self.site.run("runs", *words)
        assert asked.wait_exit() == exit_code, asked.stderr
        return asked

    def of_coordinator(self, key: str) -> Any:
        return coordinator_status(self.site.address, self.site.operator_access())[key]

    def train(self, answering_with: str) -> str:
        """Ask for a run; return it when it has finished. Meanwhile all answer with another."""
        before = self.of_coordinator("last_run")
        retrain(self.site.address, self.site.operator_access())
        while (run := self.of_coordinator("last_run")) == before:
            self.check_answers(answering_with)
        assert self.of_coordinator("last_outcome") == "finished"
        for name in ROSTER:
            eventually(lambda name=name: self.next_run(name) == run, f"{name} has its model")
        return str(run)

    def next_run(self, name: str) -> str | None:
        """The run that a client has trained and does not serve yet."""
        found = self.status(name)["next_model"]
        return found and str(found["run"])


@pytest.mark.core
def test_all_answer_with_the_old_run_until_the_last_has_published(site: Site) -> None:
    holding = Holding(site)
    (first,) = set(holding.runs())
    second = holding.train(first)
    assert (holding.of_coordinator("held_run"), holding.of_coordinator("held_by")) == (
        second,
        [HOLDER],
    )
    assert holding.models_on_disk() == [sorted([first, second])] * 3
    holding.check_answers(first)
    assert holding.run_for_peers(second) == first, "nor does a peer get anything of it"

    # Whoever is started again goes on as before: the holder, one that waits, the coordinator.
    for name in (HOLDER, "bank"):
        assert holding.clients[name].terminate() == 0
        holding.start(name)
        holding.wait_whole()
        holding.check_answers(first)
    assert holding.coordinator.terminate() == 0
    holding.start_coordinator()
    eventually(lambda: holding.of_coordinator("held_by") == [HOLDER], "it remembers who holds")
    holding.check_answers(first)

    # A later run takes the place of the one that was held, and no client keeps three models.
    third = holding.train(first)
    assert holding.models_on_disk() == [sorted([first, third])] * 3
    refused = holding.publish(second, exit_code=6)
    assert f"the one that is not served yet is {third}" in refused.stderr
    listed = site.run("runs", "runs", "list", "--config", f"{HOLDER}.yaml", "--format", "json")
    assert listed.wait_exit() == 0
    states = [(run["run"], run["state"]) for run in json.loads(listed.stdout)["runs"]]
    assert states == [(first, "served"), (third, "held")]

    assert holding.publish(third).stdout == f"run {third} is served\n"
    for name in ROSTER:
        with holding.predictor(name) as predictor:
            answers = []

            def switched(predictor: Any = predictor, answers: list[Any] = answers) -> bool:
                answers.append(predictor.predict(holding.ids))
                return bool(answers[-1].run == third)

            eventually(switched, f"{name} switches")
        assert all(answer.blocks.all() for answer in answers), "no block is lost in the switch"
        assert {answer.run for answer in answers} <= {first, third}
    holding.check_answers(third)
    assert holding.run_for_peers(third) == third
    assert holding.models_on_disk() == [sorted([first, third])] * 3
    assert holding.of_coordinator("held_run") is None
    for name in ROSTER:
        assert holding.next_run(name) is None
    for process in site.processes:
        assert "Traceback" not in process.stderr, process.name
