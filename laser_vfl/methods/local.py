"""Local: each client with labels learns from its own block, and predicts with it alone."""

import numpy as np

from laser_vfl.core.method import Method
from laser_vfl.core.place import Place
from laser_vfl.core.plan import Plan
from laser_vfl.core.tasks import Tasks, one_task


class Local(Method):
    """Nothing is exchanged."""

    releases_representations = False

    def learns_from(self, observed: int, place: Place) -> int:
        """Return the own block."""
        return 1 << place.client

    def predicts_from(self, observed: int, place: Place) -> int:
        """Return the own block."""
        return 1 << place.client

    def asks(self, place: Place) -> int:
        """Return nobody."""
        return 0

    def tasks(self, plan: Plan, place: Place) -> Tasks:
        """Predict each sample from the one block there is."""
        return one_task(plan, np.ones((len(plan.rows), 1), dtype=np.float32), place.settings)

    def scores(self, subset: int, place: Place) -> bool:
        """The own block alone."""
        return subset == 1 << place.client

    def used(self, observed: int, place: Place) -> int:
        """Return the own block."""
        return 1 << place.client
