"""A federation of real processes to which things happen, and the oracle of what came of it."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from safetensors.torch import load_file

from laser_vfl.bench.proxy import Proxy
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.applied_steps import Applied, Entry
from tests.support.daemons.harness import Process, Site, eventually, free_address
from tests.support.data.people import People
from tests.support.oracle.replay import replay
from tests.support.oracle.single_process import SingleProcess, single_process
from tests.support.oracle.step_logs import read_log
from tests.support.trials.faults import ACTIONS, BUILT_IN, Fault, Sign

TRAINING = {"batch_size": 16, "epochs": 8, "step_timeout_s": 3.0, "checkpoint_every": 5}
LONG = {"step_timeout_s": 20.0}
"""For runs in which nobody may be left out for being slow: a first step may take seconds."""

SHORT_WAITS = {
    "MembershipPolicy": {
        "away_s": 0.3,
        "silent_s": 1.5,
        "stranded_s": 1.0,
        "cut_s": 3.0,
        "return_s": 3.0,
        "first_rejoin_s": 0.2,
    },
    "WaitingTimes": {"heartbeat_s": 0.3, "retry_s": 0.2, "unheard_s": 1.5},
}
"""The waiting times of the rules, shorter; `test_defaults.py` has those that people get."""

PACE_S = 0.02
SLOW_PACE_S = 0.1
SLOW_EPOCHS = 30
FINISH_S = 60.0


class Trial:
    """Clients that train slowly enough for faults to hit them.

    Where somebody has to be back before the end, they are `slow`, and `hurry` once that is so.
    """

    def __init__(
        self,
        site: Site,
        roster: Sequence[str] = ("bank", "shop", "telco"),
        *,
        training: Mapping[str, Any] | None = None,
        models: Mapping[str, Mapping[str, Any]] | None = None,
        proxied: Sequence[str] = (),
        labels: Mapping[str, str | None] | None = None,
        num_people: int = 240,
        client: Mapping[str, Any] | None = None,
        slow: bool = False,
        programs: Mapping[str, Sequence[str]] | None = None,
        faults: Sequence[Fault] = (),
        **coordinator: Any,
    ) -> None:
        """`faults` are those that are built in; others are injected."""
        self.site = site
        site.wait_shorter(SHORT_WAITS)
        self.roster = list(roster)
        self.clients: dict[str, Process] = {}
        self._signs: list[tuple[Fault, Sign]] = []
        self._num_noted: dict[str, int] = {}
        """How much each client had noted of its steps when it was last started."""
        self.pace_s = SLOW_PACE_S if slow else PACE_S
        epochs = {"epochs": SLOW_EPOCHS} if slow else {}
        self.models = dict(models or {})
        self._labels = dict(labels or {})
        self._client = dict(client or {})
        self.programs = dict(programs or {})
        self._stack = ExitStack()
        self.proxies = {name: self._stack.enter_context(Proxy()) for name in proxied}
        self._listen = {name: free_address() for name in ("coordinator", *roster)}
        for name, proxy in self.proxies.items():
            proxy.target = self._listen[name]
        people = People(num_people, seed=5)
        for name in roster:
            label = self._labels.get(name, "kind")
            people.write(site.path, name, p_hold=0.8, label=label, test_share=0.2)
        self._coordinator = site.coordinator_config(
            roster, {**TRAINING, **epochs, **(training or {})}, **coordinator
        )
        self._coordinator["listen"] = self._listen["coordinator"]
        for fault in faults:
            self._signs.append((fault, BUILT_IN[fault.what](self, fault)))

    def __enter__(self) -> "Trial":
        self.start_coordinator()
        for name in self.roster:
            self.start(name)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Whatever was declared has to have happened."""
        with self._stack:
            for fault, has_happened in self._signs if kind is None else ():
                assert has_happened(), f"{fault} has not happened"

    def start_coordinator(self) -> None:
        self.coordinator = self.site.start_coordinator(self._coordinator)

    def start(self, name: str) -> None:
        """Start a client, always at the same address and in the same state directory."""
        model = {
            "representation": "tests.support.trials.fault_models:paced",
            "representation_options": {"delay_s": self.pace_s},
            **self.models.get(name, {}),
        }
        label = self._labels.get(name, "kind")
        data = {"train": f"{name}_train.csv", "test": f"{name}_test.csv", "id": "id"}
        if label:
            data["label"] = label
        config = self.site.client_config(name, data=data, model=model, **self._client)
        config["listen"] = self._listen[name]
        if name in self.proxies:
            config["advertise"] = self.proxies[name].address
        if "coordinator" in self.proxies:
            config["coordinator"] = self.proxies["coordinator"].address
        self._num_noted[name] = len(self.log(name))
        program = self.programs.get(name, ("laser_vfl",))
        self.clients[name] = self.site.start_client(config, program=program)

    def inject(self, *faults: Fault) -> None:
        """Let each happen when its time has come; remember how to tell that it has."""
        for fault in faults:
            if fault.after is not None:
                self.wait_step(*fault.after)
            self._signs.append((fault, ACTIONS[fault.what](self, fault)))
            time.sleep(fault.then_wait_s)

    def process(self, name: str) -> Process:
        """The coordinator, or a client, as it was started last."""
        return self.coordinator if name == "coordinator" else self.clients[name]

    def said_by(self, name: str) -> str:
        """What a client has said in all of its lives."""
        return "".join(p.stderr for p in self.site.processes if p.name == name)

    def wait_step(self, name: str, step: int, within_s: float = FINISH_S) -> None:
        """Wait until a client has applied a step."""
        eventually(lambda: self.last_step(name) >= step, f"{name} has done step {step}", within_s)

    def wait_back(self, name: str, within_s: float = FINISH_S) -> None:
        """Wait until a client has applied a step since it was last started."""

        def trains() -> bool:
            noted = self.log(name)[self._num_noted[name] :]
            return any(isinstance(entry, Applied) for entry in noted)

        eventually(trains, f"{name} trains again", within_s)

    def wait_together(self, name: str, *others: str, within_s: float = FINISH_S) -> int:
        """Wait until a client applies steps with these others and nobody else.

        Returns the generation in which it does.
        """
        wanted = mask_of(self.roster.index(each) for each in (name, *others))

        def generation() -> int:
            applied = [entry for entry in self.log(name) if isinstance(entry, Applied)]
            is_so = bool(applied) and applied[-1].participants == wanted
            return applied[-1].generation if is_so else 0

        company = f"with {' and '.join(others)}" if others else "alone"
        return eventually(generation, f"{name} trains {company}", within_s)

    def last_step(self, name: str) -> int:
        """The last step that a client has applied, in whichever of its lives."""
        applied = [entry.step for entry in self.log(name) if isinstance(entry, Applied)]
        return applied[-1] if applied else -1

    def log(self, name: str) -> list[Entry]:
        """What a client noted of its steps in the last run."""
        paths = (self.site.path / f"{name}-state" / "runs").glob("*/steps.log")
        newest = max(paths, key=lambda path: path.stat().st_mtime, default=None)
        return read_log(newest) if newest else []

    def generations(self, name: str) -> list[int]:
        """The generations in which a client applied steps, in order."""
        return sorted({e.generation for e in self.log(name) if isinstance(e, Applied)})

    def dropped(self, name: str) -> dict[str, int]:
        """How many frames a client has dropped by the end, by reason."""
        return dict(self.site.metrics(name)[-1]["frames_dropped"])

    def wait_generation(self, name: str, generation: int, within_s: float = FINISH_S) -> None:
        """Wait until a client has applied a step in a generation, or a later one."""
        eventually(
            lambda: max(self.generations(name), default=0) >= generation,
            f"{name} trains in generation {generation}",
            within_s,
        )

    def status(self) -> dict[str, Any]:
        """What `laser-vfl status` says."""
        arguments = ["status", "--coordinator", self.site.address, "--format", "json"]
        process = self.site.run("status", *arguments, *self.site.tls_options)
        assert process.wait_exit() == 0, process.stderr
        return dict(json.loads(process.stdout))

    def finish(self, *names: str, within_s: float = FINISH_S) -> None:
        """Wait until these clients, or all that are up, serve the run's model."""
        give_up_at = time.monotonic() + within_s
        for name, client in self.clients.items():
            if name in names or (not names and client.alive):
                left_s = max(1.0, give_up_at - time.monotonic())
                client.wait_for_served(within_s=left_s)

    def check(self, *names: str) -> SingleProcess:
        """Compare the models with the oracle's, given the same views."""
        oracle = oracle_of(self.site)
        logs = {k: self.log(name) for k, name in enumerate(self.roster)}
        replay(oracle.oracle, dict(enumerate(oracle.learners)), logs)
        expected = oracle.parameters()
        for name in names or self.roster:
            path = self.site.path / f"{name}-state" / "model" / "model.safetensors"
            found = load_file(path)
            assert found.keys() == expected[name].keys()
            for key, value in found.items():
                assert torch.equal(value, expected[name][key]), (
                    f"{name}: {key} differs by {(value - expected[name][key]).abs().max():.3g}"
                )
        return oracle


def oracle_of(site: Site) -> SingleProcess:
    """Build the oracle of a site's federation; its models do not take their time."""
    oracle = single_process(site.path)
    for learner in oracle.learners:
        for module in learner.models.modules():
            if hasattr(module, "delay_s"):
                module.delay_s = 0.0
    return oracle
