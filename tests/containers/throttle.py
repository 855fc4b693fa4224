"""Latency and bandwidth between containers, set in the network namespace of each.

The kernel need not have netem: packets that arrive go through a queue to a process that lets each
of them on after the delay. What is sent is limited by a token bucket.
"""

import json
import shutil
import subprocess
import sys
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from compose_trial import Trial
from engine import tool

DELAY = "nfdelay.py"
"""Beside the script that brings an engine up; no part of the repository."""
QUEUE = "7"
READY = "nfdelay up"
FIRST = ("nice", "-n", "-15")
"""A network does not wait for a free core."""
DRAIN_S = 0.1
PACKET, BURST = "8000", "9kb"
NOWHERE = "192.0.2.0/24"
"""Addresses that are for documentation alone."""


class CannotThrottle(Exception):
    """This machine has not got what it takes, and what that is."""


class Throttle(AbstractContextManager["Throttle"]):
    """A delay for what reaches containers by the common network, and a rate for what leaves them.

    A container that starts again has a new namespace, and is then as fast as ever.
    """

    def __init__(
        self, trial: Trial, names: tuple[str, ...], *, one_way_ms: float, mbit: float
    ) -> None:
        self._trial = trial
        self._names = names
        self._one_way_ms = one_way_ms
        self._mbit = mbit
        self._stack = ExitStack()

    def __enter__(self) -> "Throttle":
        lacking = [name for name in ("nsenter", "tc", "iptables") if shutil.which(name) is None]
        if lacking:
            raise CannotThrottle(f"{', '.join(lacking)} not installed")
        delay = tool(DELAY)
        if delay is None:
            raise CannotThrottle(f"{DELAY}, which holds packets back, is not here")
        with ExitStack() as stack:
            for name in self._names:
                self._slow_down(name, delay, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _slow_down(self, name: str, delay: Path, stack: ExitStack) -> None:
        container = self._trial.container(name)
        enter = ["nsenter", "--target", str(container.attrs["State"]["Pid"]), "--net"]
        networks = container.attrs["NetworkSettings"]["Networks"]
        address = networks[f"{self._trial.project}_federation"]["IPAddress"]
        interface = _interface(enter, address)
        _use_large_packets(enter, interface, stack)
        rate = f"{self._mbit:g}mbit"
        shaping = ["tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", rate]
        _run([*enter, *shaping, "burst", BURST, "latency", "500ms"])
        stack.callback(_undo, [*enter, "tc", "qdisc", "del", "dev", interface, "root"])
        process = subprocess.Popen(
            [*FIRST, *enter, sys.executable, str(delay), QUEUE, str(self._one_way_ms)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        stack.callback(_end, process)
        assert process.stdout is not None
        if READY not in (line := process.stdout.readline()):
            raise CannotThrottle(f"packets cannot be held back here: {line.strip()}")
        rule = ["PREROUTING", "-i", interface, "-j", "NFQUEUE", "--queue-num", QUEUE]
        table = ["iptables", "-t", "mangle"]
        _run([*enter, *table, "-A", *rule, "--queue-bypass"])
        stack.callback(_undo, [*enter, *table, "-D", *rule, "--queue-bypass"])


def _use_large_packets(enter: list[str], interface: str, stack: ExitStack) -> None:
    """Have packets as large as a burst, each of which costs the process that delays it as much.

    A connection looks at that again when the routes change.
    """
    _run([*enter, "ip", "link", "set", "dev", interface, "gso_max_size", PACKET])
    _run([*enter, "ip", "route", "add", "unreachable", NOWHERE])
    stack.callback(_undo, [*enter, "ip", "route", "del", "unreachable", NOWHERE])


def _interface(enter: list[str], address: str) -> str:
    """Return the interface of a namespace that has an address."""
    for interface in json.loads(_run([*enter, "ip", "-json", "address"])):
        if any(one["local"] == address for one in interface["addr_info"]):
            return str(interface["ifname"])
    raise AssertionError(f"nobody has {address}")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CannotThrottle(f"{' '.join(command[4:])}: {done.stderr.strip()}")
    return done.stdout


def _undo(command: list[str]) -> None:
    """Take something back; a namespace that is gone has taken it along."""
    subprocess.run(command, capture_output=True)


def _end(process: "subprocess.Popen[str]") -> None:
    """End what holds packets back, once those that it has are through."""
    time.sleep(DRAIN_S)
    process.terminate()
    process.wait()
    if process.stdout:
        process.stdout.close()
