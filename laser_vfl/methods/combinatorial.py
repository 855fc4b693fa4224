"""Combinatorial: a predictor for each subset of blocks, with representation models of its own.

Every client of a subset that has labels has a head for it, so that each can answer by itself. Their
number grows as 2^K, which is what LASER-VFL is there to avoid.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from laser_vfl.core.errors import MismatchError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import (
    Answers,
    Masks,
    Method,
    ModelParts,
    ModelUse,
    Prediction,
    Rows,
)
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.training.fusion import Task
from laser_vfl.core.training.task_sampling import Tasks, all_tasks, divisor
from laser_vfl.methods.profiles import PROFILES

_PROFILE = PROFILES["combinatorial"]


class SubsetModels(ModelUse):
    """A client's representation is one for each subset that it is in, side by side."""

    def representation(self, parts: ModelParts, context: FederationContext) -> nn.Module:
        """Build a model for each subset."""
        if refusal := _PROFILE.refusal(context.num_clients):
            why, hint = refusal
            raise MismatchError(why, hint=hint)
        return OfSubsets(context, parts.of_block)

    def fusion(self, parts: ModelParts, context: FederationContext) -> nn.Module:
        """Build a head for each subset."""
        return OfSubsets(context, parts.fusion)

    def represent(
        self,
        model: nn.Module,
        inputs: torch.Tensor,
        context: FederationContext,
        patterns: Sequence[int],
    ) -> torch.Tensor:
        """Run the models of subsets that some sample has."""
        return run_models(model, inputs, context, patterns)

    def exchanged_width(self, context: FederationContext) -> int:
        """Return the width of the representations of all subsets that two clients are in."""
        num = _PROFILE.num_exchanged(context.num_clients)
        return num * context.settings.representation_dim

    def columns(self, context: FederationContext, peer: int) -> torch.Tensor | None:
        """Return the representations of the subsets that both are in."""
        return shared_columns(context, peer)


class SubsetPrediction(Prediction):
    """Each subset's head predicts from the representations of that subset."""

    def embed(
        self, models: nn.ModuleDict, inputs: torch.Tensor, context: FederationContext, task: Task
    ) -> torch.Tensor:
        """Run the models of all subsets that somebody predicts from."""
        return run_models(models["representation"], inputs, context, [context.everyone])

    def outputs(
        self, fusion: nn.Module, tasks: Tasks, representations_bpd: torch.Tensor
    ) -> torch.Tensor:
        """Run each subset's head on the average of its own representations."""
        assert isinstance(fusion, OfSubsets)
        num_rows, num_blocks, _ = representations_bpd.shape
        by_slot = representations_bpd.view(num_rows, num_blocks, len(fusion.by_subset), -1)
        slots = list(fusion.by_subset)
        outputs = []
        for t, mask in enumerate(tasks.subset_t):
            stack_bpd = by_slot[:, :, slots.index(mask)]
            mean_bd = torch.bmm(tasks.averaging_btp[:, t : t + 1], stack_bpd).squeeze(1)
            outputs.append(fusion.by_subset[mask](mean_bd))
        outputs_no = torch.stack(outputs, dim=1).flatten(0, 1)
        return outputs_no if tasks.kept_n is None else outputs_no[tasks.kept_n]

    def fused_width(self, context: FederationContext) -> int:
        """Return the width of a representation, and one column for the subset."""
        return context.settings.representation_dim + 1

    def fuse(
        self, own_nd: Rows, answers: Answers, context: FederationContext
    ) -> tuple[Rows, Masks]:
        """Average what belongs to the subset at hand, and note which one that is."""
        subsets, width = _subsets(context), context.settings.representation_dim
        blocks = np.full(len(own_nd), mask_of([context.client]), dtype=np.uint64)
        for client, (places, _) in answers.items():
            blocks[places] |= np.uint64(mask_of([client]))
        total_nd = own_nd.copy()
        for client, (places, rows) in answers.items():
            columns = shared_columns(context, client)
            wide = np.zeros((len(rows), total_nd.shape[1]), dtype=np.float32)
            wide[:, columns.numpy()] = rows
            total_nd[places] += wide
        slot_n = np.array([subsets.index(int(mask)) for mask in blocks], dtype=np.intp)
        picked_nd = total_nd.reshape(len(own_nd), len(subsets), width)[
            np.arange(len(own_nd)), slot_n
        ]
        mean_nd = picked_nd / np.bitwise_count(blocks)[:, None].astype(np.float32)
        return np.column_stack([mean_nd, slot_n.astype(np.float32)]), blocks

    def answers(
        self,
        fusion: nn.Module,
        fused_nd: torch.Tensor,
        task: Task,
        chance: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Run each row through the head of its subset."""
        assert isinstance(fusion, OfSubsets)
        heads, slot_n = list(fusion.by_subset.values()), fused_nd[:, -1].long()
        outputs_no: torch.Tensor | None = None
        for slot in sorted(set(slot_n.tolist())):
            rows = slot_n == slot
            part_no = heads[slot](fused_nd[rows, :-1])
            if outputs_no is None:
                outputs_no = part_no.new_zeros((len(fused_nd), part_no.shape[1]))
            outputs_no[rows] = part_no
        assert outputs_no is not None
        return outputs_no


class Combinatorial(Method):
    """Trains all predictors, each on the samples that have all of its blocks."""

    models = SubsetModels()
    releases_representations = False
    prediction = SubsetPrediction()

    def tasks(self, plan: Plan, context: FederationContext) -> Tasks:
        """Predict each sample from every subset of its blocks; heads share a subset's weight."""
        patterns = plan.patterns
        subsets = [mask for mask in _subsets(context) if _occurs(mask, patterns)]
        tasks, subset_n = all_tasks(plan, subsets)
        num_heads = np.array([(mask & context.heads).bit_count() for mask in subsets])
        weights = 1 / (num_heads[subset_n] * divisor(plan, context.settings))
        return replace(tasks, weight_n=torch.from_numpy(weights.astype(np.float32)))


class OfSubsets(nn.Module):
    """A module for each subset that a client is in."""

    def __init__(self, context: FederationContext, build: Callable[[], nn.Module]) -> None:
        super().__init__()
        masks = _subsets(context)
        self.parts = nn.ModuleList([build() for _ in masks])
        self.by_subset = dict(zip(masks, self.parts, strict=True))


def run_models(
    model: nn.Module, inputs: torch.Tensor, context: FederationContext, patterns: Sequence[int]
) -> torch.Tensor:
    """Run the models of subsets that some sample has and somebody predicts from.

    The rest are zeros, so that an optimiser leaves their parameters alone.
    """
    assert isinstance(model, OfSubsets)
    blank = inputs.new_zeros((len(inputs), context.settings.representation_dim))
    return torch.cat(
        [
            part(inputs) if mask & context.heads and _occurs(mask, patterns) else blank
            for mask, part in model.by_subset.items()
        ],
        dim=1,
    )


def shared_columns(context: FederationContext, peer: int) -> torch.Tensor:
    """Return the columns of the subsets that a client and a peer are in."""
    width = context.settings.representation_dim
    shared = [slot for slot, mask in enumerate(_subsets(context)) if has(mask, peer)]
    return (torch.tensor(shared)[:, None] * width + torch.arange(width)).flatten()


def _subsets(context: FederationContext) -> list[int]:
    """Return the subsets with a client in the order of their masks, which all clients have."""
    return [mask for mask in range(1 << context.num_clients) if has(mask, context.client)]


def _occurs(subset: int, patterns: Sequence[int]) -> bool:
    return any(not subset & ~pattern for pattern in patterns)
