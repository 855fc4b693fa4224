"""Which of this client's gradients no mask hides, told whenever others take part than before."""

import logging
from collections.abc import Sequence

from laser_vfl.core.alignment import Group
from laser_vfl.core.masking import num_unmasked
from laser_vfl.core.place import Place
from laser_vfl.core.subsets import subset_name

log = logging.getLogger(__name__)


class UnmaskedRows:
    """Warns before gradients leave. A mask takes two others with labels who hold the row now.

    So it is not enough to count once: who leaves a run, or is made to, takes masks along.
    """

    def __init__(self, groups: Sequence[Group], place: Place, roster: Sequence[str]) -> None:
        self._groups = groups
        self._place = place
        self._roster = roster
        self._participants: int | None = None

    def look(self, participants: int) -> None:
        """Warn if there are any in steps of these, unless the last steps were of the same."""
        if participants == self._participants:
            return
        self._participants = participants
        num_bare, num_shared = num_unmasked(
            self._groups, self._place.client, self._place.heads, participants
        )
        if num_bare:
            log.warning(
                "for %d of %d shared rows somebody gets this client's gradients unmasked, because "
                "no two others with labels hold them and take part; %s take part now",
                num_bare,
                num_shared,
                subset_name(participants, self._roster).replace(",", ", "),
            )
