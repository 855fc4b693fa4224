"""The highest checkpoint that all members have, from which a run can be resumed."""

from collections.abc import Mapping
from typing import Any, Self

from laser_vfl.coordinator.rules.directives import View
from laser_vfl.coordinator.rules.registration import Registration


class CommonCheckpoint:
    """The highest step whose checkpoint every member has, or that it joined after."""

    def __init__(self, view: View) -> None:
        self.step = 0
        self._joined_at = {member.incarnation: member.next_step for member in view.members}
        """The step since which each member has taken part without a break."""

    def hear(self, view: View, members: Mapping[str, Registration]) -> None:
        """Take in which checkpoints the members say they have, if all of them say so."""
        if len(members) < len(view.members):
            return
        steps = {step for member in members.values() for step in member.report.checkpoints}
        for step in sorted(steps, reverse=True):
            if step <= self.step:
                return
            if all(
                step in member.report.checkpoints or self._joined_at[member.incarnation] > step
                for member in members.values()
            ):
                self.step = step
                return

    def raise_to(self, step: int) -> None:
        """Take in that a run goes on from a step, which may be higher than the known one."""
        self.step = max(self.step, step)

    def changed(self, view: View) -> None:
        """Take in a view with other members."""
        self._joined_at = {
            m.incarnation: self._joined_at.get(m.incarnation, m.next_step) for m in view.members
        }

    def snapshot(self) -> dict[str, Any]:
        """Return what has to be on disk."""
        return {"step": self.step, "joined_at": [list(item) for item in self._joined_at.items()]}

    @classmethod
    def restore(cls, view: View, stored: Mapping[str, Any]) -> Self:
        """Return what a snapshot was taken of."""
        restored = cls(view)
        restored.step, restored._joined_at = stored["step"], dict(stored["joined_at"])
        return restored
