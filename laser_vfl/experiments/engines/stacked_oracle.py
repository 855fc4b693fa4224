"""The oracle's training with all clients' models in one product: the same but for rounding.

Small models spend their time on being called, and this calls them once for all clients.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.schedule.schedule import Step
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.schedule.timeline import ScheduledStep
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.training.fusion import sample_losses
from laser_vfl.core.training.learner import Learner, learning_rate
from laser_vfl.core.training.task_sampling import Tasks
from laser_vfl.experiments.engines.model_stack import Gradients, Stack
from laser_vfl.methods.combinatorial import OfSubsets
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.methods.vfedtrans.method import Enriched

Floats = npt.NDArray[np.float32]
Unit = tuple[int, int]
"""A client, and the subset that a model of its is for; 0 where it is for all of them."""


class Diverged(Exception):
    """Something is infinite by now, and in a product with zeros spoils what it should not touch."""


@dataclass(frozen=True)
class _Predicting:
    """What a head does in a step: it averages, predicts and weighs."""

    unit: Unit
    rows: npt.NDArray[np.intp]
    """Which rows of the step it has."""
    blocks: tuple[Unit, ...]
    averaging_btp: Floats
    weight_bt: Floats


class StackedOracle(Oracle):
    """Trains MLPs of equal widths and leaves their parameters where the oracle does.

    What VFedTrans does before it trains predictors is the oracle's own.
    """

    def __init__(self, members: Mapping[int, Member], settings: TrainingSettings) -> None:
        super().__init__(members, settings)
        learners = [member.learner for member in self._members.values()]
        _check(settings, learners)
        self._optimizer = learners[0].optimizer_settings
        self._pipeline = settings.pipeline
        self._computed: deque[tuple[int, Gradients, Gradients, float]] = deque()
        """Steps that are not applied yet: gradients of models and of heads, and the rate."""
        head = next(learner for learner in learners if "fusion" in learner.models)
        self._task, self._label_noise = head.task, head.label_noise
        models = _by_unit(learners, "representation")
        heads = _by_unit(learners, "fusion")
        self._places = {unit: place for place, unit in enumerate(models)}
        self._heads = {unit: place for place, unit in enumerate(heads)}
        self._models_stack = Stack(list(models.values()), self._optimizer)
        self._heads_stack = Stack(list(heads.values()), self._optimizer)

    @cached_property
    def _samples(self) -> "_Samples":
        """What the models are trained on, once it is known."""
        samples = _Samples(self._members)
        if not samples.inputs.isfinite().all():
            raise Diverged
        return samples

    def run(
        self, num_steps: int | None = None, *, participants: Callable[[int], int] | None = None
    ) -> list[dict[int, float]]:
        """Train for some or all steps, with everybody in each."""
        assert participants is None
        everybody = mask_of(self._members)
        for number in range(self.num_steps if num_steps is None else num_steps):
            scheduled = self.timeline.step(number)
            if scheduled.kind == "training":
                self._update_before(self.timeline.applied_before(number))
                self._one_step(number, scheduled)
            else:
                self.step(number, everybody)
        self._update_before(self.num_steps)
        if not (self._models_stack.is_finite and self._heads_stack.is_finite):
            raise Diverged
        self._models_stack.write_back()
        self._heads_stack.write_back()
        return []

    def _one_step(self, number: int, scheduled: ScheduledStep) -> None:
        assert scheduled.batch is not None
        plans = self._plans(number, mask_of(self._members))
        work = [
            part
            for plan in plans.values()
            if plan.has_head
            for part in self._predictings(plan, scheduled.batch)
        ]
        if not work:
            return
        samples = torch.from_numpy(self._samples.numbers(scheduled.batch))
        blocks = sorted(
            {unit for part in work for unit in part.blocks}, key=self._places.__getitem__
        )
        clients = torch.tensor([client for client, _ in blocks])
        rows_kbd = self._models_stack.run(
            self._samples.inputs[clients[:, None], samples], [self._places[u] for u in blocks]
        )
        averaging, weights_bht = _spread(work, blocks, len(samples))
        outputs_hbto = self._predicted(averaging, rows_kbd, work)
        owners = torch.tensor([part.unit[0] for part in work])[:, None]
        targets_hb = self._samples.targets[owners, samples]
        weights_hb = self._samples.weights[owners, samples]
        weights_hbt = weights_bht.transpose(0, 1) * weights_hb[..., None]
        real_n = weights_hbt.flatten().nonzero()[:, 0]
        losses_n = sample_losses(
            self._task,
            outputs_hbto.flatten(0, 2)[real_n],
            targets_hb.flatten()[real_n // weights_hbt.shape[2]],
            self._label_noise,
        )
        torch.autograd.backward((losses_n * weights_hbt.flatten()[real_n]).sum())
        rate = learning_rate(self._optimizer, scheduled.progress, self._pipeline)
        gradients = self._models_stack.gradients(), self._heads_stack.gradients()
        self._computed.append((number, *gradients, rate))

    def _update_before(self, step: int) -> None:
        """Apply the steps before `step` that are computed and not applied yet."""
        while self._computed and self._computed[0][0] < step:
            _, of_models, of_heads, rate = self._computed.popleft()
            self._models_stack.update(of_models, rate)
            self._heads_stack.update(of_heads, rate)

    def _predicted(
        self, averaging_bhtk: torch.Tensor, rows_kbd: torch.Tensor, work: Sequence[_Predicting]
    ) -> torch.Tensor:
        """Return what the heads make of the averages of rows (h, b, t, o)."""
        heads = [self._heads[part.unit] for part in work]
        one_model_each = not any(subset for part in work for _, subset in part.blocks)
        if self._heads_stack.is_linear and one_model_each:
            return self._heads_stack.run_on_averages(averaging_bhtk, rows_kbd, heads)
        num_rows, num_heads, num_tasks, _ = averaging_bhtk.shape
        fused_bnd = torch.bmm(averaging_bhtk.flatten(1, 2), rows_kbd.transpose(0, 1))
        fused_hnd = fused_bnd.view(num_rows, num_heads, num_tasks, -1).transpose(0, 1)
        outputs_hno = self._heads_stack.run(fused_hnd.flatten(1, 2), heads)
        return outputs_hno.view(num_heads, num_rows, num_tasks, -1)

    def _predictings(self, plan: Plan, step: Step) -> list[_Predicting]:
        learner = self._members[plan.client].learner
        tasks = learner.draw_tasks(plan)
        averaging_btp, rows = tasks.averaging_btp.numpy(), self._samples.rows(plan, step, learner)
        weight_bt = _weights(tasks)
        if not tasks.subset_t:
            blocks = tuple((block, 0) for block in plan.blocks)
            return [_Predicting((plan.client, 0), rows, blocks, averaging_btp, weight_bt)]
        return [
            _of_subset(plan, rows, subset, averaging_btp[:, t : t + 1], weight_bt[:, t : t + 1])
            for t, subset in enumerate(tasks.subset_t)
        ]


class _Samples:
    """What all clients have of each sample, zeros where one has nothing."""

    def __init__(self, members: Mapping[int, Member]) -> None:
        self._groups = next(iter(members.values())).alignment.groups
        sizes = [group.size for group in self._groups]
        self._starts = np.concatenate([[0], np.cumsum(sizes)])
        self.inputs = self._gathered(members, _inputs)
        self.targets = self._gathered(members, lambda member: member.targets)
        self.weights = self._gathered(members, lambda member: member.label_weights)

    def numbers(self, step: Step) -> npt.NDArray[np.int64]:
        """Return the samples of a step, in the order of its segments."""
        return np.concatenate([self._starts[s.group] + s.places for s in step.segments])

    def rows(self, plan: Plan, step: Step, learner: Learner) -> npt.NDArray[np.intp]:
        """Return which of these are in a client's plan."""
        if len(plan.rows) == step.num_samples:
            return np.arange(step.num_samples)
        held = [
            has(observed, plan.client)
            and bool(learner.method.blocks.learns_from(observed, learner.context))
            for observed in (self._groups[segment.group].observed for segment in step.segments)
        ]
        return np.flatnonzero(np.repeat(held, [len(s.places) for s in step.segments]))

    def _gathered(
        self, members: Mapping[int, Member], what: Callable[[Member], torch.Tensor | None]
    ) -> torch.Tensor:
        values = {client: what(member) for client, member in members.items()}
        like = next(value for value in values.values() if value is not None)
        gathered = like.new_zeros((len(members), int(self._starts[-1]), *like.shape[1:]))
        for client, value in values.items():
            for group, rows in members[client].alignment.rows.items():
                if value is not None:
                    start, stop = self._starts[group], self._starts[group + 1]
                    gathered[client, start:stop] = value[torch.from_numpy(rows)]
        return gathered


def _inputs(member: Member) -> torch.Tensor:
    model = member.learner.models["representation"]
    if isinstance(model, Enriched):
        return model.enriched(member.inputs)
    return member.inputs.flatten(1)


def _check(settings: TrainingSettings, learners: Sequence[Learner]) -> None:
    """Refuse what only the oracle can do."""
    tasks = {(one.task, one.label_noise) for one in learners if "fusion" in one.models}
    if settings.masked_gradients or settings.wire_precision != "float32":
        raise ConfigError(
            "what is sent is not stacked, so neither masked_gradients nor wire_precision",
            hint="use --engine oracle",
        )
    if len(tasks) > 1:
        raise ConfigError("clients are stacked only if all do the same", hint="use --engine oracle")


def _by_unit(learners: Sequence[Learner], name: str) -> dict[Unit, nn.Module]:
    models: dict[Unit, nn.Module] = {}
    for client, learner in enumerate(learners):
        if name in learner.models:
            model = learner.models[name]
            model = model.model if isinstance(model, Enriched) else model
            parts = model.by_subset if isinstance(model, OfSubsets) else {0: model}
            models |= {(client, subset): part for subset, part in parts.items()}
    return models


def _weights(tasks: Tasks) -> Floats:
    """Return the weights of all tasks, 0 for those that are not real."""
    num_rows, num_tasks, _ = tasks.averaging_btp.shape
    weights = tasks.weight_n.numpy()
    if tasks.kept_n is not None:
        weights = np.zeros(num_rows * num_tasks, dtype=np.float32)
        weights[tasks.kept_n.numpy()] = tasks.weight_n.numpy()
    return weights.reshape(num_rows, num_tasks)


def _of_subset(
    plan: Plan, rows: npt.NDArray[np.intp], subset: int, averaging_btp: Floats, weight_bt: Floats
) -> _Predicting:
    columns = [column for column, block in enumerate(plan.blocks) if has(subset, block)]
    blocks = tuple((plan.blocks[column], subset) for column in columns)
    return _Predicting((plan.client, subset), rows, blocks, averaging_btp[..., columns], weight_bt)


def _spread(
    work: Sequence[_Predicting], blocks: Sequence[Unit], num_rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return all heads' averaging (b, h, t, k) and weights (b, h, t), zeros where one has none."""
    num_tasks = max(part.weight_bt.shape[1] for part in work)
    column = {unit: place for place, unit in enumerate(blocks)}
    averaging: Any = np.zeros((num_rows, len(work), num_tasks, len(blocks)), dtype=np.float32)
    weights = np.zeros((num_rows, len(work), num_tasks), dtype=np.float32)
    for h, part in enumerate(work):
        tasks = slice(part.weight_bt.shape[1])
        columns = [column[unit] for unit in part.blocks]
        weights[part.rows, h, tasks] = part.weight_bt
        for place, k in enumerate(columns):
            averaging[part.rows, h, tasks, k] = part.averaging_btp[..., place]
    return torch.from_numpy(averaging), torch.from_numpy(weights)
