"""A training step as one client does it: represent, send, gather, learn, send, gather, update."""

import math
from dataclasses import dataclass

import torch

from laser_vfl.client.device import Host
from laser_vfl.client.peers.step_transport import StepTransport, diverged
from laser_vfl.client.tables.block import EncodedTable
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.privacy.noise import Phase
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.training.gradients import backward_from
from laser_vfl.core.training.learner import Learner
from laser_vfl.core.training.step_models import StepModels
from laser_vfl.core.training.task_sampling import Tasks


@dataclass(frozen=True)
class StepContext:
    """What all steps on one table share: the learner, the table's rows, and the other clients."""

    learner: Learner
    host: Host
    transport: StepTransport
    table: EncodedTable
    alignment: ClientAlignment

    def inputs(self, plan: Plan) -> torch.Tensor:
        """Return the features of a step's rows, on the device."""
        return self.host.to_device(self.table.inputs.index_select(0, torch.from_numpy(plan.rows)))

    def labels(self, plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the targets of a step's rows and their weights, on the device."""
        assert self.table.targets is not None
        assert self.table.label_weights is not None
        rows = torch.from_numpy(plan.rows)
        return (
            self.host.to_device(self.table.targets.index_select(0, rows)),
            self.host.to_device(self.table.label_weights.index_select(0, rows)),
        )

    def gather(self, plan: Plan, own_bd: torch.Tensor, phase: Phase) -> torch.Tensor:
        """Wait for all representations and return them with the own one, (b, p, d), on the device.

        A row has zeros where a peer does not hold it.
        """
        stack_bpd = self.host.blank(len(plan.rows), len(plan.blocks), own_bd.shape[1])
        stack_bpd[:, plan.blocks.index(plan.client)] = own_bd
        self.transport.gather_representations(plan, stack_bpd, phase)
        return self.host.to_device(stack_bpd)


@dataclass(frozen=True)
class StepInputs:
    """What a step needs that no parameter has a part in, so that it can be made ready early."""

    plan: Plan
    features: torch.Tensor
    labels: tuple[torch.Tensor, torch.Tensor] | None
    tasks: Tasks | None
    """The subsets that the own head predicts; None without one, as are the labels."""

    @classmethod
    def of(cls, context: StepContext, plan: Plan) -> "StepInputs":
        """Gather the rows of a step, and draw the tasks of its head."""
        features = context.inputs(plan)
        if not plan.has_head:
            return cls(plan, features, None, None)
        return cls(plan, features, context.labels(plan), context.learner.draw_tasks(plan))


class TrainingStep:
    """One step under way. Until it is applied, it has changed nothing that another step sees.

    `begin`, then `learn` where there is a head, then `apply`; or `drop` at any moment.
    """

    def __init__(self, context: StepContext, inputs: StepInputs, progress: float) -> None:
        self.plan = inputs.plan
        self.loss: float | None = None
        """That of the own head, once it has learnt."""
        self.has_learnt = not inputs.plan.has_head
        self._context = context
        self._inputs = inputs
        self._progress = progress
        self._models: StepModels | None = None
        self._own_gradient_bd: torch.Tensor | None = None

    def begin(self) -> None:
        """Represent the own rows, and send them to those who predict from them."""
        context, plan = self._context, self.plan
        self._models = models = context.learner.begin_step()
        self._representation_bd = models.represent(self._inputs.features, plan.step, plan.patterns)
        self._own_bd = own_bd = context.host.to_host(self._representation_bd.detach())
        if not math.isfinite(own_bd.sum()):
            raise diverged(f"the representation of step {plan.step} is not finite")
        sent_bd = context.learner.released(own_bd, Phase.TRAINING, plan.step)
        context.transport.send_representations(plan, sent_bd, Phase.TRAINING)

    def learn(self) -> None:
        """Wait for the others' representations, run the head, and send their gradients back."""
        context, plan, inputs = self._context, self.plan, self._inputs
        assert inputs.tasks is not None
        assert inputs.labels is not None
        assert self._models is not None
        stack_bpd = context.gather(plan, self._own_bd, Phase.TRAINING).requires_grad_()
        loss = self._models.loss(plan.step, inputs.tasks, stack_bpd, *inputs.labels)
        torch.autograd.backward(loss)
        self.loss = loss.item()
        if not math.isfinite(self.loss):
            raise diverged(f"the loss of step {plan.step} is not finite")
        assert stack_bpd.grad is not None
        gradient_bpd = context.host.to_host(stack_bpd.grad)
        context.transport.send_gradients(plan, gradient_bpd)
        self._own_gradient_bd = gradient_bpd[:, plan.blocks.index(plan.client)]
        self.has_learnt = True

    def apply(self) -> None:
        """Wait for the others' gradients, and change the models."""
        context = self._context
        assert self._models is not None
        total_bd = context.transport.gather_gradients(
            self.plan, self._own_gradient_bd, self._own_bd.shape[1]
        )
        backward_from(self._representation_bd, context.host.to_device(total_bd))
        context.transport.check()
        context.learner.apply_step(self._models, self._progress)
        self._models = None

    def drop(self) -> None:
        """Leave no trace of a step that was begun."""
        if self._models is not None:
            self._context.learner.drop_step(self._models)
            self._models = None


def train_step(context: StepContext, plan: Plan, progress: float) -> float | None:
    """Do one step alone; return the loss of this client's head, None without one."""
    step = TrainingStep(context, StepInputs.of(context, plan), progress)
    try:
        step.begin()
        if not step.has_learnt:
            step.learn()
        step.apply()
        context.transport.flush()
    except BaseException:
        step.drop()
        raise
    return step.loss
