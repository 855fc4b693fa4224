"""Which runs are live: those whose models no organisation holds back."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from laser_vfl.coordinator.rules.directives import Publication

NUM_LIVE = 2
"""How many runs are told to be live: a client keeps the models of so many."""


class Publications:
    """Lets a run's models go live when all of its organisations have published them.

    Until then everybody serves the run before, so that the blocks of all clients fit. Only the last
    run that finished can be held back: one that finishes later takes its place.
    """

    def __init__(
        self, roster: Sequence[str], finished: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self._roster = tuple(roster)
        self._members_of = dict(finished or {})
        """The members of the runs that have finished."""
        self._live: list[str] = []
        self._held_run = ""
        self._held_by: set[str] = set()

    @property
    def state(self) -> Publication:
        """Return what everybody is told."""
        held_by = tuple(name for name in self._roster if name in self._held_by)
        return Publication(tuple(self._live), self._held_run, held_by)

    def finished(self, run: str, members: Sequence[str], held_by: Iterable[str]) -> None:
        """A run has finished, and some of its members hold it back."""
        self._members_of[run] = tuple(members)
        self._held_run, self._held_by = run, set(held_by)
        self._settle()

    def heard(self, client: str, next_run: str, *, holds: bool) -> None:
        """A client says which run it has not served yet, and whether it holds that back itself."""
        if not self._live and not self._held_run and next_run and next_run == self._last_run:
            # The coordinator has lost what it knew: all hold it until they say otherwise.
            self._held_run, self._held_by = next_run, set(self._members_of[next_run])
        if not self._held_run:
            return
        if holds and next_run == self._held_run and client in self._members_of[next_run]:
            self._held_by.add(client)
        else:
            self._held_by.discard(client)
        self._settle()

    @property
    def _last_run(self) -> str:
        """The run that has finished last; empty if none has."""
        return next(reversed(self._members_of), "")

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it."""
        state = self.state
        members = list(self._members_of.get(state.held_run, ()))
        return {
            "live": list(state.live),
            "held_run": state.held_run,
            "held_by": list(state.held_by),
            "members": members,
        }

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Take over what a snapshot holds."""
        self._live = list(stored["live"])
        self._held_run, self._held_by = stored["held_run"], set(stored["held_by"])
        if self._held_run:
            self._members_of[self._held_run] = tuple(stored["members"])

    def _settle(self) -> None:
        if self._held_run and not self._held_by:
            self._live = [*self._live, self._held_run][-NUM_LIVE:]
            self._held_run = ""
