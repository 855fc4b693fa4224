"""Who takes part in a run under way, and how that changes: stop, collect answers, issue a view.

Plain state and plain rules: `decide` is told what everybody reports and what time it is.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

from laser_vfl.coordinator.changes import Change, Departure
from laser_vfl.coordinator.completion import Completion
from laser_vfl.coordinator.directives import RingMember, State, Training, View, ViewMember
from laser_vfl.coordinator.joiners import Joiners, There, may_come_back
from laser_vfl.coordinator.offences import Offences, accusations
from laser_vfl.coordinator.registration import Registration
from laser_vfl.coordinator.suspicion import (
    AWAY_S,
    STRANDED_S,
    Rules,
    cut_pairs,
    is_gone,
    is_slow,
    suspects,
    waits_in_vain,
    without_cuts,
)
from laser_vfl.coordinator.unrest import Unrest

log = logging.getLogger(__name__)

MAX_DEPARTURES = 64
"""The last that are kept; those of one change fit, as a roster has no more clients than this."""

NO_LIMIT = 2**63 - 1

LEFT = "it left"
"""The only reason that nobody is waited for."""


class Membership:
    """The views of one run."""

    def __init__(self, roster: Sequence[str], rules: Rules, view: View) -> None:
        self.view = view
        self.departures: list[Departure] = []
        self.num_changes = 0
        self._roster = tuple(roster)
        self._rules = rules
        self._change: Change | None = None
        self._door = Joiners(roster)
        self._joiners: tuple[RingMember, ...] = ()
        self._deserted_since: float | None = None
        """Since when no member has been left, in a run that has not ended."""
        self._resume: int | None = NO_LIMIT
        self._waiting_for: tuple[str, ...] = ()
        self._completion = Completion(view)
        self._cuts_heeded_from = 0.0
        self._offences = Offences()
        self._unrest = Unrest()
        self._farewells: dict[str, str] = {}
        self._stranded = ("", 0.0)
        """Why all may have to begin anew, and since when."""
        self._is_restored = False
        """Whether members may have been told to stop before this coordinator was started."""

    def farewell(self, client: str, reason: str) -> None:
        """Take note why a member is not registered any more."""
        self._farewells[client] = reason

    def decide(self, there: There, now: float, wall: float = 0.0) -> bool:
        """Do whatever is due; tell whether a new view was issued."""
        there = {name: r for name, r in there.items() if name not in self.barred}
        members = self._members(there)
        self._completion.hear(self.view, members)
        self._joiners = tuple(
            r.as_ring_member() for r in self._door.candidates(self.view, there, now)
        )
        if self._change is None and (cause := self._cause(members, there, now)):
            self._change = Change(
                now,
                cause,
                suspects(members, self._rules),
                cut_pairs(members, self._rules),
                accusations(members),
            )
            log.info("generation %d ends: %s", self.view.generation, cause)
            name = self._alarmed_by(members)
            if name and (why := self._unrest.alarm(name)) and self._may_go(members):
                self._change.expelled[name] = why
        if self._change is None:
            return False
        return self._settle(self._change, members, there, now, wall)

    @property
    def is_changing(self) -> bool:
        """Whether members are asked to stop."""
        return self._change is not None

    @property
    def complete(self) -> int:
        """The highest step whose checkpoint everybody has."""
        return self._completion.step

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Without whom training does not go on."""
        return self._waiting_for

    @property
    def barred(self) -> Mapping[str, str]:
        """Who may not come back to the run, and why."""
        return self._offences.barred

    @property
    def excluded(self) -> tuple[Departure, ...]:
        """Whom the last change left out, but for those who left by themselves."""
        return tuple(
            gone
            for gone in self.departures
            if gone.generation == self.view.generation
            and gone.reason != LEFT
            and gone.client not in self.view.clients
        )

    def directive(self) -> Training:
        """Return what members and those who want to join are told."""
        return Training(
            self.view,
            self.view.generation if self._change else 0,
            self._joiners,
            self.complete,
            self._resume,
            self._waiting_for,
        )

    def has_finished(self, there: There) -> bool:
        """Whether every member has done all of its part."""
        members = self._members(there)
        return len(members) == len(self.view.members) and all(
            member.report.state is State.FINISHED for member in members.values()
        )

    def is_lost(self, there: There) -> bool:
        """Whether no member is left, and all of the last ones are back with nothing of the run."""
        back = [there.get(name) for name in self.view.clients]
        return self._deserted_since is not None and all(
            r is not None and r.available and r.heard and r.report.run != self.view.run
            for r in back
        )

    def rest(self, now: float) -> None:
        """Start all timeouts afresh; the coordinator itself was away."""
        self._door.rest()
        self._cuts_heeded_from = 0.0
        if self._deserted_since is not None:
            self._deserted_since = now
        if self._change is not None:
            self._change.begun_at = now

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it."""
        return {
            "view": asdict(self.view),
            "completion": self._completion.snapshot(),
            "num_changes": self.num_changes,
            "exclusions": dict(self._door.exclusions),
            "offences": self._offences.snapshot(),
            "unrest": self._unrest.snapshot(),
            "departures": [asdict(departure) for departure in self.departures],
        }

    @classmethod
    def restore(cls, roster: Sequence[str], rules: Rules, stored: Mapping[str, Any]) -> Self:
        """Return the membership that a snapshot was taken of."""
        view = dict(stored["view"])
        view["members"] = tuple(ViewMember(**member) for member in view["members"])
        view["heads"] = tuple(view["heads"])
        restored = cls(roster, rules, View(**view))
        restored._is_restored = True
        restored._completion = Completion.restore(restored.view, stored["completion"])
        restored.num_changes = stored["num_changes"]
        restored._door.exclusions = Counter(stored["exclusions"])
        restored._offences = Offences.restore(stored["offences"])
        restored._unrest = Unrest.restore(stored["unrest"])
        restored.departures = [Departure(**departure) for departure in stored["departures"]]
        return restored

    def _members(self, there: There) -> dict[str, Registration]:
        return {
            member.client: registration
            for member in self.view.members
            if (registration := there.get(member.client))
            and registration.incarnation == member.incarnation
            and registration.verdict is None
        }

    def _cause(self, members: dict[str, Registration], there: There, now: float) -> str:
        """Return why a change has to begin; empty if nothing has to change."""
        rules = self._rules
        for name in self.view.clients:
            if name not in members:
                return f"{name}: {self._farewells.get(name, 'it is gone')}"
        for name, member in members.items():
            if member.report.leaving:
                return f"{name} leaves"
            if member.report.stopped >= self.view.generation:
                return f"{name} has stopped"
        suspected = suspects(members, rules)
        for name, member in members.items():
            if why := is_gone(member, rules, now, suspected=name in suspected):
                return f"lost {name}: {why}"
        slow = {
            name: why
            for name, member in members.items()
            if (why := is_slow(member, rules, now, suspected=name in suspected))
        }
        if slow and rules.on_lost == "continue" and len(members) - len(slow) >= rules.quorum:
            name, why = next(iter(slow.items()))
            return f"{name} is slow: {why}"
        cuts = cut_pairs(members, rules) if now >= self._cuts_heeded_from else None
        if cuts:
            return f"{' and '.join(sorted(min(cuts, key=sorted)))} cannot reach each other"
        if why := self._lasts(waits_in_vain(members, rules)[1], now):
            return why
        if joiners := self._door.admissible(list(members.values()), self.view, there, now):
            return f"{joiners[0].client} joins"
        return ""

    def _alarmed_by(self, members: dict[str, Registration]) -> str:
        """Return who has everybody stop though nobody goes; empty if that is not so."""
        is_whole = len(members) == len(self.view.clients)
        if self._is_restored or not is_whole or any(m.report.leaving for m in members.values()):
            return ""
        stopped = (n for n, m in members.items() if m.report.stopped >= self.view.generation)
        return next(stopped, "") or waits_in_vain(members, self._rules)[0]

    def _may_go(self, members: dict[str, Registration]) -> bool:
        """Whether training goes on when one of the members is sent away."""
        return self._rules.on_lost == "continue" and len(members) > self._rules.quorum

    def _lasts(self, why: str, now: float) -> str:
        """Return a reason that stays when everybody has been heard once more."""
        if why != self._stranded[0]:
            self._stranded = (why, now)
        return why if now - self._stranded[1] >= STRANDED_S else ""

    def _settle(
        self,
        change: Change,
        members: dict[str, Registration],
        there: There,
        now: float,
        wall: float,
    ) -> bool:
        """Give up who does not answer; when all others have, issue a view if it may be one."""
        change.suspects |= suspects(members, self._rules)
        for name in self.view.clients:
            if name not in members:
                change.lost.setdefault(name, self._farewells.get(name, "it is gone"))
        survivors, is_answered = [], True
        answers = [m for m in members.values() if m.report.stopped >= self.view.generation]
        are_enough = len([m for m in answers if not m.report.leaving]) >= self._rules.quorum
        for name, member in members.items():
            if member.report.leaving and member.report.stopped >= self.view.generation:
                change.lost[name] = LEFT
            elif name in change.expelled:
                change.lost[name] = change.expelled[name]
            elif why := self._gives_up_on(member, change, now, are_enough=are_enough):
                change.lost[name] = why
            elif member.report.stopped < self.view.generation:
                is_answered = False
            else:
                change.lost.pop(name, None)
                survivors.append(member)
        if not is_answered:
            self._waiting_for = ()
            return False
        if not survivors:
            return self._begin_again(change, there, now, wall)
        self._deserted_since = None
        self._resume = NO_LIMIT
        names = [member.client for member in survivors]
        present = {pair for pair in change.cuts if pair.issubset(names)}
        offenders = self._offences.judge(present, change.accused)
        innocent = [name for name in names if name not in offenders]
        kept = without_cuts(self._unrest.in_order(innocent), change.cuts)
        if len(kept) < self._rules.quorum <= len(names) or self._rules.on_lost == "wait":
            kept = names  # nobody is left out; they try again together
            self._cuts_heeded_from = now + self._rules.cut_s
        staying = [member for member in survivors if member.client in kept]
        joiners = self._door.admissible(staying, self.view, there, now)
        coming = {*kept, *(joiner.client for joiner in joiners)}
        lacking = [
            name
            for name, why in change.lost.items()
            if name not in coming and why != LEFT and self._rules.on_lost == "wait"
        ]
        if lacking or len(coming) < self._rules.quorum:
            self._waiting_for = tuple(
                lacking or (n for n in self._roster if n not in coming and n in self._of_run)
            )
            return False
        given = {m.client: m.next_step for m in self.view.members}
        next_steps = {m.client: max(m.report.next_step, given[m.client]) for m in staying}
        first_step = min(next_steps.values())
        next_steps |= {j.client: max(j.report.next_step, first_step) for j in joiners}
        for name in names:
            if name in kept:
                continue
            if name in offenders:
                why = self._offences.excluded(name, offenders[name], change.accused)
                change.lost[name] = why
            else:
                cut_from = next(iter(next(p for p in change.cuts if name in p) - {name}))
                change.lost[name] = f"it and {cut_from} cannot reach each other"
                self._unrest.cut(name, cut_from)
        self._issue([*staying, *joiners], next_steps, change, there, now, wall)
        return True

    @property
    def _of_run(self) -> tuple[str, ...]:
        gone = (departure.client for departure in self.departures)
        return (*self.view.clients, *(client for client in gone if client not in self.barred))

    def _gives_up_on(
        self, member: Registration, change: Change, now: float, *, are_enough: bool
    ) -> str:
        """Return why a member is not waited for; who is slow is, until enough others are there."""
        rules, has_answered = self._rules, member.report.stopped >= self.view.generation
        suspected = member.client in change.suspects
        why = is_gone(member, rules, now, suspected=suspected)
        if why:
            is_waiting_over = now - change.begun_at >= AWAY_S or not member.in_session
            return why if is_waiting_over else ""
        if has_answered or rules.on_lost == "wait":
            return ""
        if are_enough and (slow := is_slow(member, rules, now, suspected=suspected)):
            return slow
        if now - change.begun_at > rules.step_timeout_s + AWAY_S:
            return "it did not stop when told"
        return ""

    def _begin_again(self, change: Change, there: There, now: float, wall: float) -> bool:
        """No member is left: go on from the highest checkpoint that all of the last ones have."""
        if self._deserted_since is None:
            self._deserted_since, self._resume = now, None
        is_over = now - self._deserted_since >= self._rules.restart_grace_s
        may_go_on = is_over and self._rules.on_lost == "continue"
        wanted = self._roster if may_go_on else self.view.clients
        back = [r for n in wanted if (r := there.get(n)) and may_come_back(r, self.view.run)]
        missing = tuple(n for n in self.view.clients if n not in [r.client for r in back])
        self._waiting_for = missing
        if self._resume is None and back and (not missing or may_go_on):
            held = [set(r.report.checkpoints) for r in back]
            common = set.intersection(*held)
            self._resume = max([self.complete, *(common if not missing else ())])
            log.info("no member is left; the run goes on from step %d", self._resume)
        if self._resume is None:
            return False
        ready = [r for r in back if r.report.state is State.READY]
        ready = [r for r in ready if r.report.next_step <= self._resume]
        if now - self._deserted_since >= 2 * self._rules.restart_grace_s and may_go_on:
            back = ready  # who is back and does not get ready is not waited for any longer
        if len(ready) < len(back if may_go_on else self.view.members):
            self._waiting_for = tuple(
                n for n in self.view.clients if n not in [r.client for r in ready]
            )
            return False
        if len(ready) < max(1, self._rules.quorum):
            return False
        self._completion.step = max(self.complete, self._resume)
        steps = {r.client: self._resume for r in ready}
        self._issue(ready, steps, change, there, now, wall)
        return True

    def _issue(
        self,
        members: Sequence[Registration],
        next_steps: Mapping[str, int],
        change: Change,
        there: There,
        now: float,
        wall: float,
    ) -> None:
        before, generation = self.view, self.view.generation + 1
        ordered = sorted(members, key=lambda m: self._roster.index(m.client))
        self.view = replace(
            before,
            generation=generation,
            members=tuple(m.as_member(next_steps[m.client]) for m in ordered),
        )
        for member in before.members:
            if self.view.has(member.client, member.incarnation):
                continue
            why = change.lost.get(member.client, "it was started anew")
            self._exclude(member, why, there, now, wall)
        for member in self.view.members:
            if not before.has(member.client, member.incarnation):
                log.info("%s joins at step %d", member.client, member.next_step)
        self._completion.changed(self.view)
        self.num_changes += 1
        self._change = None
        self._is_restored = False
        self._farewells.clear()
        self._deserted_since, self._resume, self._waiting_for = None, NO_LIMIT, ()
        for registration in members:
            registration.begins(now)

    def _exclude(self, member: ViewMember, why: str, there: There, now: float, wall: float) -> None:
        client = member.client
        log.warning("lost %s: %s", client, why)
        self.departures.append(Departure(client, self.view.generation, why, wall))
        del self.departures[:-MAX_DEPARTURES]
        if why != LEFT:
            self._door.excluded(client, now)
        registration = there.get(client)
        if registration is not None and registration.incarnation == member.incarnation:
            registration.excluded = why
