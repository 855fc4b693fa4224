"""Replays a federation that had failures, from what its clients noted of their steps.

Generations follow each other at every client, and within one a client's steps do. So the order by
generation, then step, keeps every client's own order. A participant that did not apply a step has
computed it all the same, with the state that it had then.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from laser_vfl.core.reference import Oracle
from laser_vfl.core.subsets import clients_in, has, mask_of
from laser_vfl.core.training.applied_steps import Applied, Entry, Loaded
from laser_vfl.core.training.learner import Learner

_START = -1


def replay(
    oracle: Oracle, learners: Mapping[int, Learner], logs: Mapping[int, Sequence[Entry]]
) -> None:
    """Bring the oracle's fresh learners to where the clients of these logs ended.

    A checkpoint at step S is the state after the last step below S that the client applied in the
    latest of its lives that began at or below S: a client that loads one removes its later ones.
    """
    for client in logs:
        if client not in learners:
            raise ValueError(f"client {client} has a log and no learner")
    clients = {
        k: _Client(k, learner, logs.get(k, ()), oracle.settle) for k, learner in learners.items()
    }
    before = None
    for generation, step in _moments(logs):
        if generation != before:  # nothing is under way when a view begins
            oracle.settle()
        before = generation
        appliers = {k: one.takes(generation, step) for k, one in clients.items()}
        noted = {k: entry.participants for k, entry in appliers.items() if entry is not None}
        participants = _agreed(generation, step, noted)
        oracle.step(step, participants, mask_of(noted))
        for client in noted:
            clients[client].done()
    oracle.settle()
    for one in clients.values():
        one.end()


class _Client:
    """One client as it goes through its log."""

    def __init__(
        self,
        client: int,
        learner: Learner,
        log: Sequence[Entry],
        settle: Callable[[Sequence[int]], None],
    ) -> None:
        self._client = client
        self._settle = settle
        self._learner = learner
        self._log = log
        self._next = 0
        self._generations = _generations(client, log)
        self._source = {i: _source(log, i) for i, e in enumerate(log) if isinstance(e, Loaded)}
        self._kept: dict[int, dict[str, torch.Tensor]] = {}
        self._keep(_START)

    def takes(self, generation: int, step: int) -> Applied | None:
        """Load what this life of the client began with; return the step if it applied it."""
        while self._next < len(self._log) and self._generations[self._next] <= generation:
            entry = self._log[self._next]
            if isinstance(entry, Applied):
                return entry if (entry.generation, entry.step) == (generation, step) else None
            self._load()
        return None

    def done(self) -> None:
        """The next entry has happened."""
        self._keep(self._next)
        self._next += 1

    def end(self) -> None:
        """Load what was loaded last, if no step came after it."""
        while self._next < len(self._log):
            self._load()

    def _load(self) -> None:
        self._learner.load_state(self._kept[self._source[self._next]])
        self.done()

    def _keep(self, place: int) -> None:
        if place in self._source.values():
            self._settle([self._client])  # nothing is under way at a checkpoint
            self._kept[place] = self._learner.state()


def _source(log: Sequence[Entry], place: int) -> int:
    """Return after which entry a client had the state that it loads at `place`."""
    loaded = log[place]
    source = None
    for i in range(place - 1, _START - 1, -1):
        entry = log[i] if i != _START else Loaded(0)
        if isinstance(entry, Applied):
            if source is None and entry.step < loaded.step:
                source = i
        elif entry.step <= loaded.step:
            return i if source is None else source
        else:
            source = None
    raise AssertionError("the initial parameters are below every step")


def _generations(client: int, log: Sequence[Entry]) -> list[float]:
    """Return from which generation on each entry holds; refuse a log that goes back."""
    generations: list[float] = []
    following = float("inf")
    for entry in reversed(log):
        following = following if entry.generation is None else entry.generation
        generations.append(following)
    generations.reverse()
    loaded_in, applied_in = -1.0, (-1.0, -1)
    for entry, generation in zip(log, generations, strict=True):
        if isinstance(entry, Loaded):
            in_order = generation > applied_in[0] and generation >= loaded_in
            loaded_in = generation
        else:
            in_order = (generation, entry.step) > applied_in and generation >= loaded_in
            applied_in = generation, entry.step
        if not in_order:
            raise ValueError(
                f"client {client} cannot have noted {entry} after what it noted before"
            )
    return generations


def _moments(logs: Mapping[int, Sequence[Entry]]) -> list[tuple[int, int]]:
    return sorted(
        {(e.generation, e.step) for log in logs.values() for e in log if isinstance(e, Applied)}
    )


def _agreed(generation: int, step: int, noted: Mapping[int, int]) -> int:
    """Return the participants of a step, if all that applied it say the same."""
    which = f"step {step} of generation {generation}"
    if len(set(noted.values())) != 1:
        views = ", ".join(f"client {k} has {list(clients_in(mask))}" for k, mask in noted.items())
        raise ValueError(f"the participants of {which} differ: {views}")
    participants = next(iter(noted.values()))
    for client in noted:
        if not has(participants, client):
            raise ValueError(f"client {client} applied {which} and took no part in it")
    return participants
