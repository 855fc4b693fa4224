"""Local: each client with labels learns from its own block, and predicts with it alone."""

import numpy as np

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import BlockUse, Method
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.training.task_sampling import Tasks, one_task


class OwnBlock(BlockUse):
    """Every client uses its own block and nothing else."""

    def learns_from(self, observed: int, context: FederationContext) -> int:
        """Return the own block."""
        return 1 << context.client

    def predicts_from(self, observed: int, context: FederationContext) -> int:
        """Return the own block."""
        return 1 << context.client

    def asks(self, context: FederationContext) -> int:
        """Return nobody."""
        return 0

    def has_predictor(self, subset: int, context: FederationContext) -> bool:
        """Only for the own block alone."""
        return subset == 1 << context.client

    def used(self, observed: int, context: FederationContext) -> int:
        """Return the own block."""
        return 1 << context.client


class Local(Method):
    """Nothing is exchanged."""

    blocks = OwnBlock()
    releases_representations = False

    def tasks(self, plan: Plan, context: FederationContext) -> Tasks:
        """Predict each sample from the one block there is."""
        return one_task(plan, np.ones((len(plan.rows), 1), dtype=np.float32), context.settings)
