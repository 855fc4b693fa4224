"""LASER-VFL: one representation model and one head a client, which share all subsets of blocks."""

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import Method
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.training.task_sampling import Tasks, sample_tasks


class Laser(Method):
    """Trains each head on one random subset of each size, with weights that make it unbiased."""

    def tasks(self, plan: Plan, context: FederationContext) -> Tasks:
        """Draw one subset of each size that contains the client, for each sample or each batch."""
        return sample_tasks(
            plan,
            context.settings,
            num_clients=context.num_clients,
            heads=context.heads,
            groups=context.groups,
        )
