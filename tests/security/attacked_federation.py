"""The federation that is attacked while it serves, and what has to be true of it afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import psutil

from tests.support.attacks.attack_table import CLOSED
from tests.support.daemons.authorities import OwnAuthorities, OwnAuthoritiesSite, Tls
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Process

ROSTER = ["bank", "shop", "telco"]
ORGANISATIONS = ["coordinator", *ROSTER, "museum"]
"""The museum has certificates of the federation, and is not on the roster."""

MOST_GROWTH = 20e6
"""How many bytes a daemon may hold after an attack that it did not hold before."""

DOORS = ("coordinator", "peers", "predictions")
CODE_KEY = "laser-vfl-error"
SECRETS = ("Traceback", "Exception", "Error:", "class '", ".py", "0x", "laser_vfl", "/tmp")
"""What no answer to a stranger has in it."""

TROUBLE = ("Traceback", "internal error", "is a bug", "never retrieved")
"""What no log has in it."""


Found = TypeVar("Found")


class Grown(AssertionError):
    """A daemon holds more memory than before."""


@dataclass
class AttackedFederation:
    """Three clients that have trained and serve, their coordinator, and doors to knock at."""

    federation: Federation
    authority: OwnAuthorities
    directory: Path
    """Where attackers keep their things."""
    memory: dict[str, int] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    usual: list[Any] = field(default_factory=list)

    @property
    def daemons(self) -> dict[str, Process]:
        return {"coordinator": self.federation.coordinator, **self.federation.clients}

    def address(self, door: str, owner: str = "bank") -> str:
        """Where one of the doors is; the coordinator has one, each client has two."""
        if door == "coordinator":
            return self.federation.site.address
        client = self.federation.clients[owner]
        return client.wait_ready() if door == "peers" else client.wait_predict()

    def door(self, door: str, shown: Tls | None, owner: str = "bank") -> grpc.Channel:
        """Return a channel to a door of somebody who shows a certificate, or none."""
        to = "coordinator" if door == "coordinator" else owner
        return self.authority.channel_with(self.address(door, owner), to, shown)

    def after(self, attack: Callable[[], Found]) -> Found:
        """Return what came of an attack, and check that it has harmed nobody.

        What an allocator keeps of an attack it keeps once: the same attack again adds nothing.
        """
        found = attack()
        try:
            self.check_unharmed()
        except Grown:
            self.measure()
            found = attack()
            self.check_unharmed()
        return found

    def check_unharmed(self) -> None:
        """All serve with all blocks, nobody has grown or failed, and the logs are clean."""
        self.check_serves()
        for name, daemon in self.daemons.items():
            assert daemon.alive, name
            said = daemon.stderr[self.read.get(name, 0) :]
            self.read[name] = self.read.get(name, 0) + len(said)
            assert not [word for word in TROUBLE if word in said], f"{name}:\n{said}"
            grown = rss(daemon) - self.memory[name]
            if grown >= MOST_GROWTH:
                raise Grown(f"{name} has grown by {grown / 1e6:.1f} MB")

    def check_serves(self) -> None:
        """Every client predicts what it predicted before, with all blocks."""
        found = []
        for name in ROSTER:
            with self.federation.predictor(name) as predictor:
                answer = predictor.predict(self.federation.ids)
            assert answer.blocks.all(), f"{name} lacks blocks"
            found.append(answer.labels.tolist())
        self.usual = self.usual or found
        assert found == self.usual

    def warm_up(self) -> None:
        """Have everything loaded that is loaded once, and remember how much memory that takes."""
        self.federation.wait_whole()
        for _ in range(20):
            self.check_serves()
        garbage = b"\xff" * 8
        for door in DOORS:
            with self.door(door, self.authority.issue("shop")) as channel:
                for _ in range(50):
                    outcome(lambda channel=channel: channel.unary_unary("/a/B")(garbage, timeout=5))
        self.measure()
        self.check_unharmed()

    def measure(self) -> None:
        """Remember how much memory every daemon takes."""
        self.memory = {name: rss(daemon) for name, daemon in self.daemons.items()}


def build(directory: Path, federation: str = "trial") -> AttackedFederation:
    """Start a federation, have it train, and wait until it serves."""
    authority = OwnAuthorities(directory / "authorities", ORGANISATIONS, federation)
    site = OwnAuthoritiesSite(directory / "site", authority)
    serving = Federation(site, ROSTER, {}, alignments_per_day=10_000)
    attacked = AttackedFederation(serving, authority, directory / "attacker")
    attacked.warm_up()
    return attacked


def outcome(call: Callable[[], object]) -> str:
    """Return how a call ends: its status, and which of our errors the trailer names."""
    try:
        call()
    except grpc.RpcError as error:
        trailing = dict(error.trailing_metadata() or ())  # type: ignore[attr-defined]
        code, details = error.code(), error.details() or ""  # type: ignore[attr-defined]
        if code is grpc.StatusCode.UNAVAILABLE and CODE_KEY not in trailing:
            return CLOSED
        assert not [word for word in SECRETS if word in details], details
        assert len(details) < 1000
        return " ".join(filter(None, (code.name, str(trailing.get(CODE_KEY, "")))))
    return "OK"


def rss(daemon: Process) -> int:
    return int(psutil.Process(daemon.pid).memory_info().rss)
