"""Ensemble: local predictors, and a vote of those that hold a sample when it is predicted."""

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from laser_vfl.core.errors import MismatchError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import (
    Answers,
    Masks,
    ModelParts,
    ModelUse,
    Prediction,
    Rows,
    chances,
    guesses,
)
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.training.fusion import Task, fused_representations
from laser_vfl.core.training.task_sampling import Tasks
from laser_vfl.methods.local import Local, OwnBlock

TIE_BREAK = 1e-3
"""Far less than one vote."""

MARK_WIDTH = 4
"""How many columns of a vote say what it is about: 28 bits that any precision keeps."""


class VoterBlocks(OwnBlock):
    """Clients train on their own blocks, and predict together with all that have a vote."""

    def predicts_from(self, observed: int, context: FederationContext) -> int:
        """Return all that have a vote."""
        voters = observed & context.heads
        return voters if voters >> context.client & 1 else 0

    def asks(self, context: FederationContext) -> int:
        """Return all others that have a vote."""
        return context.heads & ~(1 << context.client)

    def has_predictor(self, subset: int, context: FederationContext) -> bool:
        """For any set of voters."""
        return not subset & ~context.heads

    def used(self, observed: int, context: FederationContext) -> int:
        """Return all that have a vote."""
        return observed & context.heads


class BallotModels(ModelUse):
    """The plain models; a head also knows the classes that it decides between."""

    def fusion(self, parts: ModelParts, context: FederationContext) -> nn.Module:
        """Build a head whose decisions fit into a row."""
        width, needed = context.settings.representation_dim, parts.num_outputs + MARK_WIDTH
        if not parts.classes:
            raise MismatchError(
                "clients vote on classes, and this label is an amount",
                hint="use a label with classes, or agree on another training.method",
            )
        if needed > width:
            raise MismatchError(
                f"a vote on {len(parts.classes)} classes takes {needed} columns, and has {width}",
                hint="raise training.representation_dim at the coordinator",
            )
        return Ballot(parts.fusion(), parts.num_outputs, parts.classes)


class Voting(Prediction):
    """Clients exchange votes, as rows of a representation, and each counts them.

    A vote ends in a mark of the classes that it decides between. One with another mark, or heavier
    than one, counts for nothing, as if its client did not hold the sample.
    """

    def embed(
        self, models: nn.ModuleDict, inputs: torch.Tensor, context: FederationContext, task: Task
    ) -> torch.Tensor:
        """Return votes: one column a class, or the sign of a binary decision; then the mark."""
        width = context.settings.representation_dim
        if "fusion" not in models:  # without labels, it has no vote
            return torch.zeros((len(inputs), width), device=inputs.device)
        fusion = models["fusion"]
        assert isinstance(fusion, Ballot)
        outputs_no = fusion(models["representation"](inputs)).float()
        if task == "multiclass":
            votes_no = functional.one_hot(outputs_no.argmax(dim=1), outputs_no.shape[1]).float()
        else:
            votes_no = torch.where(outputs_no > 0, 1.0, -1.0)
        votes_nd = functional.pad(votes_no, (0, width - votes_no.shape[1]))
        votes_nd[:, -MARK_WIDTH:] = votes_nd.new_tensor(fusion.mark)
        return votes_nd

    def evaluate(
        self,
        fusion: nn.Module,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        plan: Plan,
        context: FederationContext,
        task: Task,
    ) -> torch.Tensor:
        """Count votes; ties are broken at random."""
        assert isinstance(fusion, Ballot)
        mark = representations_bpd.new_tensor(fusion.mark)
        agreeing_bp = (representations_bpd[..., -MARK_WIDTH:] == mark).all(dim=-1)
        agreeing_bp &= representations_bpd[..., :-MARK_WIDTH].abs().sum(dim=-1) == 1
        counted_btp = tasks.averaging_btp * agreeing_bp[:, None]
        shares_btp = counted_btp / counted_btp.sum(dim=-1, keepdim=True).clamp(min=TIE_BREAK)
        counted = replace(tasks, averaging_btp=shares_btp)
        votes_no = fused_representations(counted, representations_bpd)[:, : fusion.num_outputs]
        chance_no = guesses(len(votes_no), votes_no.shape[1], context, counter=plan.step) - 0.5
        return votes_no + TIE_BREAK * torch.from_numpy(chance_no).to(votes_no)

    def fuse(
        self, own_nd: Rows, answers: Answers, context: FederationContext
    ) -> tuple[Rows, Masks]:
        """Average votes on the same classes as the own one."""
        everywhere, mark = np.arange(len(own_nd)), own_nd[:1, -MARK_WIDTH:]
        counted: dict[int, tuple[slice | np.ndarray[Any, Any], Rows]] = {}
        for client, (places, rows) in answers.items():
            agreeing = (rows[:, -MARK_WIDTH:] == mark).all(axis=1)
            agreeing &= np.abs(rows[:, :-MARK_WIDTH]).sum(axis=1) == 1
            counted[client] = (places, rows)
            if not agreeing.all():
                counted[client] = (everywhere[places][agreeing], rows[agreeing])
        return super().fuse(own_nd, counted, context)

    def answers(
        self,
        fusion: nn.Module,
        fused_nd: torch.Tensor,
        task: Task,
        chance: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Count votes; probabilities are shares of them."""
        assert isinstance(fusion, Ballot)
        votes_no = fused_nd[:, : fusion.num_outputs]
        votes_no = votes_no + TIE_BREAK * chances(votes_no, chance)
        if task == "multiclass":
            return votes_no.clamp(min=TIE_BREAK / 2).log()
        return ((1 + votes_no) / 2).clamp(TIE_BREAK, 1 - TIE_BREAK).logit()


class Ensemble(Local):
    """Trained like `Local`."""

    blocks = VoterBlocks()
    models = BallotModels()
    prediction = Voting()


class Ballot(nn.Module):
    """A head that knows what it decides between."""

    def __init__(self, head: nn.Module, num_outputs: int, classes: Sequence[str]) -> None:
        super().__init__()
        self.head = head
        self.num_outputs = num_outputs
        digest = sha256(json.dumps([num_outputs, *classes]).encode()).digest()
        self.mark = [(byte & 127) / 128 for byte in digest[:MARK_WIDTH]]

    def forward(self, rows_nd: torch.Tensor) -> torch.Tensor:
        outputs_no: torch.Tensor = self.head(rows_nd)
        return outputs_no
