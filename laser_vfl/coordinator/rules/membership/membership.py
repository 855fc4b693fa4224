"""The members of a run under way, and how they change: stop, collect answers, issue a view.

Plain state and plain policy: `decide` is told what everybody reports and what time it is.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Self

from laser_vfl.coordinator.rules.directives import RingMemberInfo, State, Training, View, ViewMember
from laser_vfl.coordinator.rules.membership.admission import Admission, Registered, may_come_back
from laser_vfl.coordinator.rules.membership.common_checkpoint import CommonCheckpoint
from laser_vfl.coordinator.rules.membership.disruption_counts import DisruptionCounts
from laser_vfl.coordinator.rules.membership.failure_detector import (
    cut_pairs,
    is_gone,
    is_slow,
    mutual_pairs,
    suspects,
    without_cuts,
)
from laser_vfl.coordinator.rules.membership.hold_ups import HoldUps
from laser_vfl.coordinator.rules.membership.offences import Offences, accusations
from laser_vfl.coordinator.rules.membership.view_change import (
    LEFT,
    Change,
    Departure,
    DepartureKind,
    Loss,
)
from laser_vfl.coordinator.rules.policies import MembershipPolicy
from laser_vfl.coordinator.rules.registration import NO_END, Registration

log = logging.getLogger(__name__)

MAX_DEPARTURES = 64
"""The last that are kept; those of one change fit, as a roster has no more clients than this."""

NO_LIMIT = 2**63 - 1


class Membership:
    """The views of one run."""

    def __init__(self, roster: Sequence[str], policy: MembershipPolicy, view: View) -> None:
        self.view = view
        self.departures: list[Departure] = []
        self.num_changes = 0
        self._roster = tuple(roster)
        self._policy = policy
        self._change: Change | None = None
        self._admission = Admission(roster, policy)
        self._candidates: tuple[RingMemberInfo, ...] = ()
        self._deserted_since: float | None = None
        """When the last member was lost, in a run that has not ended; None if there are members."""
        self._resume: int | None = NO_LIMIT
        self._waiting_for: tuple[str, ...] = ()
        self._common_checkpoint = CommonCheckpoint(view)
        self._cuts_heeded_from = 0.0
        self._offences = Offences()
        self._disruptions = DisruptionCounts()
        self._leave_reasons: dict[str, str] = {}
        self._hold_ups = HoldUps(policy)
        self._is_restored = False
        """Whether members may have been told to stop before this coordinator process started."""

    def farewell(self, client: str, reason: str) -> None:
        """Take note why a member is not registered any more."""
        self._leave_reasons[client] = reason

    def decide(self, there: Registered, now: float, wall: float = 0.0) -> bool:
        """Do whatever is due; tell whether a new view was issued."""
        there = {name: r for name, r in there.items() if name not in self.barred}
        members = self._members(there)
        self._common_checkpoint.hear(self.view, members)
        self._candidates = tuple(
            r.as_ring_member() for r in self._admission.candidates(self.view, there, now)
        )
        if self._change is None:
            self._hold_ups.hear(members, self.view, now)
            if cause := self._cause(members, there, now):
                self._change = self._begin_change(cause, members, there, now)
                log.info("generation %d ends: %s", self.view.generation, cause)
        if self._change is None:
            return False
        return self._settle(self._change, members, there, now, wall)

    @property
    def complete(self) -> int:
        """The highest step whose checkpoint all members have."""
        return self._common_checkpoint.step

    @property
    def num_heads(self) -> int:
        """How many clients with labels were aligned for the run."""
        return len(self.view.heads)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The clients without which training does not go on."""
        return self._waiting_for

    @property
    def barred(self) -> Mapping[str, str]:
        """The clients that may not return to the run, each with the reason."""
        return self._offences.barred

    @property
    def excluded(self) -> tuple[Departure, ...]:
        """The members that the last change excluded, without those that left by themselves."""
        return tuple(
            gone
            for gone in self.departures
            if gone.generation == self.view.generation
            and gone.kind is not DepartureKind.LEFT
            and gone.client not in self.view.clients
        )

    def directive(self) -> Training:
        """Return what is told to members and to clients that want to join."""
        return Training(
            self.view,
            self.view.generation if self._change else 0,
            self._candidates,
            self.complete,
            self._resume,
            self._waiting_for,
        )

    def has_finished(self, there: Registered) -> bool:
        """Whether every member has done all of its part."""
        members = self._members(there)
        return len(members) == len(self.view.members) and all(
            member.report.state is State.FINISHED for member in members.values()
        )

    def end(self, there: Registered) -> int:
        """Return the `next_step` of members that have finished, once at least half agree on it.

        Among so many is an honest one, as fewer than half of the members lie.
        """
        members = self._members(there)
        reports = [member.report for member in members.values()]
        ends = Counter(r.next_step for r in reports if r.state is State.FINISHED)
        agreed = (step for step, number in ends.items() if 2 * number >= len(self.view.members))
        return max(agreed, default=NO_END)

    def is_lost(self, there: Registered) -> bool:
        """Whether no member is left, and the last ones are all back without anything of the run."""
        back = [there.get(name) for name in self.view.clients]
        return self._deserted_since is not None and all(
            r is not None and r.available and r.heard and r.report.run != self.view.run
            for r in back
        )

    def rest(self, now: float) -> None:
        """Start all timeouts afresh; the coordinator itself was away."""
        self._admission.rest()
        self._hold_ups.rest()
        self._cuts_heeded_from = 0.0
        if self._deserted_since is not None:
            self._deserted_since = now
        if self._change is not None:
            self._change.rest(now)

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk before anybody hears of it.

        The keys are those of the state directories of earlier releases, `completion` for the common
        checkpoint and `unrest` for the disruptions among them. Departures have the keys
        that 0.1.0 reads, and their kinds are apart.
        """
        return {
            "view": asdict(self.view),
            "completion": self._common_checkpoint.snapshot(),
            "num_changes": self.num_changes,
            "exclusions": self._admission.snapshot(),
            "offences": self._offences.snapshot(),
            "unrest": self._disruptions.snapshot(),
            "departures": [
                {"client": d.client, "generation": d.generation, "reason": d.reason, "at": d.at}
                for d in self.departures
            ],
            "departure_kinds": [departure.kind.value for departure in self.departures],
        }

    @classmethod
    def restore(
        cls, roster: Sequence[str], policy: MembershipPolicy, stored: Mapping[str, Any]
    ) -> Self:
        """Return the membership that a snapshot was taken of."""
        view = dict(stored["view"])
        view["members"] = tuple(ViewMember(**member) for member in view["members"])
        view["heads"] = tuple(view["heads"])
        restored = cls(roster, policy, View(**view))
        restored._is_restored = True
        restored._common_checkpoint = CommonCheckpoint.restore(restored.view, stored["completion"])
        restored.num_changes = stored["num_changes"]
        restored._admission = Admission.restore(roster, policy, stored["exclusions"])
        restored._offences = Offences.restore(stored["offences"])
        restored._disruptions = DisruptionCounts.restore(stored["unrest"])
        departures = stored["departures"]
        kinds = stored.get("departure_kinds") or [_kind_in_0_1(d["reason"]) for d in departures]
        restored.departures = [
            Departure(**departure, kind=DepartureKind(kind))
            for departure, kind in zip(departures, kinds, strict=True)
        ]
        return restored

    def _members(self, there: Registered) -> dict[str, Registration]:
        return {
            member.client: registration
            for member in self.view.members
            if (registration := there.get(member.client))
            and registration.incarnation == member.incarnation
            and registration.verdict is None
        }

    def _cause(self, members: dict[str, Registration], there: Registered, now: float) -> str:
        """Return why a change has to begin; empty if nothing has to change."""
        policy = self._policy
        for name in self.view.clients:
            if name not in members:
                return f"{name}: {self._leave_reasons.get(name, 'it is gone')}"
        for name, member in members.items():
            if member.report.leaving:
                return f"{name} leaves"
            if member.has_stopped(self.view.generation):
                return f"{name} has stopped"
        suspected = suspects(members, policy)
        for name, member in members.items():
            if why := is_gone(member, policy, now, suspected=name in suspected):
                return f"lost {name}: {why}"
        slow = self._slow(members, suspected, now)
        if slow and policy.on_lost == "continue" and len(members) - len(slow) >= policy.quorum:
            name, why = next(iter(slow.items()))
            return f"{name} is slow: {why}"
        if now >= self._cuts_heeded_from:
            if cuts := cut_pairs(members, policy) | mutual_pairs(members, policy):
                return f"{' and '.join(sorted(min(cuts, key=sorted)))} cannot reach each other"
            for circle in self._hold_ups.circles(members, now):
                return f"{' and '.join(sorted(circle))} wait for each other"
            for pair in self._hold_ups.disputes():
                return f"one of {' and '.join(sorted(pair))} waits for what the other has sent"
        if joiners := self._admissible(members, there, now):
            return f"{joiners[0].client} joins"
        return ""

    def _admissible(
        self, members: dict[str, Registration], there: Registered, now: float
    ) -> list[Registration]:
        return self._admission.admissible(list(members.values()), self.view, there, now)

    def _slow(
        self, members: dict[str, Registration], suspected: set[str], now: float
    ) -> dict[str, str]:
        """Return the members that hold up the others, each with the reason."""
        found = self._hold_ups.overdue(members, suspected, now)
        for name, member in members.items():
            if why := is_slow(member, self._policy):
                found.setdefault(name, why)
        return found

    def _begin_change(
        self, cause: str, members: dict[str, Registration], there: Registered, now: float
    ) -> Change:
        """Note what is known when a change begins, and decide which members it excludes anyway."""
        policy, hold_ups, disruptions = self._policy, self._hold_ups, self._disruptions
        cuts, stuck = cut_pairs(members, policy), mutual_pairs(members, policy)
        waited_for = {} if cuts else {n: hold_ups.graph.num_waiting_for(n) for n in members}
        expelled: dict[str, str] = {}

        def expel(name: str, why: str) -> None:
            if self._may_go(members, expelled):
                expelled.setdefault(name, why)

        suspected = suspects(members, policy)
        overdue = hold_ups.overdue(members, suspected, now)
        for name, why in overdue.items():
            expel(name, why)
        for name in self._alarmed_by(members):
            if why := disruptions.alarm(name):
                expel(name, why)
        stuck |= {pair for pair in hold_ups.disputes() if disruptions.is_repeated(pair)}
        for circle in hold_ups.circles(members, now):
            if pairs := hold_ups.pairs_in(circle):
                stuck |= pairs
            elif disruptions.is_repeated(circle):
                last = disruptions.in_order([n for n in members if n in circle], waited_for)[-1]
                others = sorted(circle - {last})
                disruptions.cut(last, *others)
                expel(last, f"it, {' and '.join(others)} wait for each other again and again")
        return Change(
            now,
            cause,
            suspected,
            cuts | stuck,
            accusations(members),
            {r.client for r in self._admissible(members, there, now)},
            waited_for,
            frozenset(overdue),
            expelled,
        )

    def _alarmed_by(self, members: dict[str, Registration]) -> list[str]:
        """Return the member whose own report alone makes everybody stop, if there is one.

        It stopped though no member is gone or leaving, or it reports that it is slow.
        """
        is_whole = len(members) == len(self.view.clients)
        if self._is_restored or not is_whole or any(m.report.leaving for m in members.values()):
            return []
        stopped = [n for n, m in members.items() if m.has_stopped(self.view.generation)]
        slow = [n for n, m in members.items() if is_slow(m, self._policy)]
        return (stopped or slow)[:1]

    def _may_go(self, members: dict[str, Registration], going: Mapping[str, str]) -> bool:
        """Whether training can go on when one more member is excluded."""
        num_left = len(members) - len(going)
        return self._policy.on_lost == "continue" and num_left > self._policy.quorum

    def _settle(
        self,
        change: Change,
        members: dict[str, Registration],
        there: Registered,
        now: float,
        wall: float,
    ) -> bool:
        """Give up members that do not answer; once all others have, issue a view if it may be."""
        change.suspects |= suspects(members, self._policy)
        for name in self.view.clients:
            if name not in members:
                change.lost.setdefault(name, Loss(self._leave_reasons.get(name, "it is gone")))
        survivors, is_answered = [], True
        answers = [m for m in members.values() if m.has_stopped(self.view.generation)]
        are_enough = len([m for m in answers if not m.report.leaving]) >= self._policy.quorum
        for name, member in members.items():
            if member.report.leaving:
                change.leaving.add(name)
            if name in change.leaving and member.has_stopped(self.view.generation):
                if name not in change.kept_waiting_s:
                    change.lost[name] = LEFT
                    change.kept_waiting_s[name] = now - change.begun_at
            elif name in change.expelled:
                change.lost[name] = Loss(change.expelled[name])
            elif why := self._gives_up_on(member, change, now, are_enough=are_enough):
                change.lost[name] = Loss(why)
            elif not member.has_stopped(self.view.generation):
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
        kept = without_cuts(self._disruptions.in_order(innocent, change.waited_for), change.cuts)
        if len(kept) < self._policy.quorum <= len(names) or self._policy.on_lost == "wait":
            kept = names  # nobody is excluded; they try again together
            self._cuts_heeded_from = now + self._policy.begun_cut_s
        staying = [member for member in survivors if member.client in kept]
        joiners = self._admission.admissible(staying, self.view, there, now)
        coming = {*kept, *(joiner.client for joiner in joiners)}
        lacking = [
            name
            for name, loss in change.lost.items()
            if name not in coming
            and loss.kind is not DepartureKind.LEFT
            and self._policy.on_lost == "wait"
        ]
        if lacking or len(coming) < self._policy.quorum:
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
                change.lost[name] = Loss(why)
            else:
                cut_from = self._cut_from(name, kept, change)
                change.lost[name] = Loss(f"it and {cut_from} cannot reach each other")
                waited_for = change.waited_for
                is_evident = waited_for.get(name, 0) > waited_for.get(cut_from, 0)
                self._disruptions.cut(name, cut_from, is_evident=is_evident)
        self._issue([*staying, *joiners], next_steps, change, there, now, wall)
        return True

    def _cut_from(self, name: str, kept: Sequence[str], change: Change) -> str:
        """Return the member that an excluded one cannot reach, the most often cut of several."""
        others = {other for pair in change.cuts if name in pair for other in pair - {name}}
        there = [other for other in self._roster if other in others]
        ordered = self._disruptions.in_order(there, change.waited_for)
        return ([other for other in ordered if other in kept] or ordered)[-1]

    @property
    def _of_run(self) -> tuple[str, ...]:
        gone = (departure.client for departure in self.departures)
        return (*self.view.clients, *(client for client in gone if client not in self.barred))

    def _gives_up_on(
        self, member: Registration, change: Change, now: float, *, are_enough: bool
    ) -> str:
        """Return why a member is not waited for; a slow one is until enough others answered."""
        policy, has_answered = self._policy, member.has_stopped(self.view.generation)
        suspected = member.client in change.suspects
        why = is_gone(member, policy, now, suspected=suspected)
        if why:
            is_waiting_over = now - change.begun_at >= policy.away_s or not member.in_session
            return why if is_waiting_over else ""
        if has_answered or policy.on_lost == "wait":
            return ""
        if are_enough and (slow := is_slow(member, policy)):
            return slow
        if now - change.begun_at > policy.step_timeout_s + policy.away_s:
            change.kept_waiting_s[member.client] = now - change.begun_at
            return "it did not stop when told"
        return ""

    def _begin_again(self, change: Change, there: Registered, now: float, wall: float) -> bool:
        """Resume from the highest checkpoint that the last members have, as no member is left."""
        if self._deserted_since is None:
            self._deserted_since, self._resume = now, None
        is_over = now - self._deserted_since >= self._policy.restart_grace_s
        may_go_on = is_over and self._policy.on_lost == "continue"
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
        if now - self._deserted_since >= 2 * self._policy.restart_grace_s and may_go_on:
            back = ready  # clients that are back and do not get ready are given up
        if len(ready) < len(back if may_go_on else self.view.members):
            self._waiting_for = tuple(
                n for n in self.view.clients if n not in [r.client for r in ready]
            )
            return False
        if len(ready) < max(1, self._policy.quorum):
            return False
        self._common_checkpoint.raise_to(self._resume)
        steps = {r.client: self._resume for r in ready}
        self._issue(ready, steps, change, there, now, wall)
        return True

    def _issue(
        self,
        members: Sequence[Registration],
        next_steps: Mapping[str, int],
        change: Change,
        there: Registered,
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
            loss = change.lost.get(member.client, Loss("it was started anew"))
            is_overdue = member.client in change.overdue
            held_up_s = self._policy.stuck_s if is_overdue else 0.0
            held_up_s += change.kept_waiting_s.get(member.client, 0.0)
            self._exclude(member, loss, there, now, wall, held_up_s)
        for client in change.joiners - set(self.view.clients):
            self._admission.left(client, now)
        for member in self.view.members:
            if not before.has(member.client, member.incarnation):
                log.info("%s joins at step %d", member.client, member.next_step)
        self._common_checkpoint.changed(self.view)
        self._hold_ups.changed()
        self.num_changes += 1
        self._change = None
        self._is_restored = False
        self._leave_reasons.clear()
        self._deserted_since, self._resume, self._waiting_for = None, NO_LIMIT, ()
        for registration in members:
            registration.begins(now)

    def _exclude(
        self,
        member: ViewMember,
        loss: Loss,
        there: Registered,
        now: float,
        wall: float,
        held_up_s: float,
    ) -> None:
        client, why = member.client, loss.reason
        log.warning("lost %s: %s", client, why)
        departure = Departure(client, self.view.generation, why, wall, loss.kind)
        self.departures.append(departure)
        del self.departures[:-MAX_DEPARTURES]
        if loss.kind is DepartureKind.LEFT:
            self._admission.left(client, now, held_up_s)
        else:
            self._admission.excluded(client, now, held_up_s)
        registration = there.get(client)
        if registration is not None and registration.incarnation == member.incarnation:
            registration.exclude(why)


def _kind_in_0_1(reason: str) -> DepartureKind:
    """Return the kind of a departure that 0.1.0 has written, which follows from its reason."""
    return DepartureKind.LEFT if reason == LEFT.reason else DepartureKind.LOST
