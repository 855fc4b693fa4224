"""Ensemble: local predictors, and a vote of those that hold a sample when it is predicted."""

import torch
from torch import nn
from torch.nn import functional

from laser_vfl.core.errors import MismatchError
from laser_vfl.core.fusion import Task, fused_representations
from laser_vfl.core.method import Parts, guesses
from laser_vfl.core.place import Place
from laser_vfl.core.plan import Plan
from laser_vfl.core.tasks import Tasks
from laser_vfl.methods.local import Local

TIE_BREAK = 1e-3
"""Far less than one vote."""


class Ensemble(Local):
    """Trained like `Local`. What clients exchange are their votes, as rows of a representation."""

    def predicts_from(self, observed: int, place: Place) -> int:
        """Return all that have a vote."""
        voters = observed & place.heads
        return voters if voters >> place.client & 1 else 0

    def asks(self, place: Place) -> int:
        """Return all others that have a vote."""
        return place.heads & ~(1 << place.client)

    def fusion(self, parts: Parts, place: Place) -> nn.Module:
        """Build a head whose decisions fit into a row."""
        width = place.settings.representation_dim
        if parts.num_outputs > width:
            raise MismatchError(
                f"{parts.num_outputs} classes do not fit into {width} columns of a vote",
                hint="raise training.representation_dim at the coordinator",
            )
        return Ballot(parts.fusion(), parts.num_outputs)

    def embed(
        self, models: nn.ModuleDict, inputs: torch.Tensor, place: Place, task: Task
    ) -> torch.Tensor:
        """Return votes: one column a class, or the sign of a binary decision, or a value."""
        outputs_no = models["fusion"](models["representation"](inputs)).float()
        if task == "multiclass":
            outputs_no = functional.one_hot(outputs_no.argmax(dim=1), outputs_no.shape[1]).float()
        elif task == "binary":
            outputs_no = torch.where(outputs_no > 0, 1.0, -1.0)
        return functional.pad(
            outputs_no, (0, place.settings.representation_dim - outputs_no.shape[1])
        )

    def predictions(
        self,
        fusion: nn.Module,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        plan: Plan,
        place: Place,
        task: Task,
    ) -> torch.Tensor:
        """Count votes; ties are broken at random."""
        assert isinstance(fusion, Ballot)
        votes_no = fused_representations(tasks, representations_bpd)[:, : fusion.num_outputs]
        if task == "regression":
            return votes_no
        chance_no = guesses(len(votes_no), votes_no.shape[1], place, moment=plan.step) - 0.5
        return votes_no + TIE_BREAK * torch.from_numpy(chance_no).to(votes_no)

    def scores(self, subset: int, place: Place) -> bool:
        """Any set of voters."""
        return not subset & ~place.heads

    def used(self, observed: int, place: Place) -> int:
        """Return all that have a vote."""
        return observed & place.heads

    def answers(self, fusion: nn.Module, fused_nd: torch.Tensor, task: Task) -> torch.Tensor:
        """Count votes; probabilities are shares of them."""
        assert isinstance(fusion, Ballot)
        votes_no = fused_nd[:, : fusion.num_outputs]
        if task == "regression":
            return votes_no
        votes_no = votes_no + TIE_BREAK * (torch.rand_like(votes_no) - 0.5)
        if task == "multiclass":
            return votes_no.clamp(min=TIE_BREAK / 2).log()
        return ((1 + votes_no) / 2).clamp(TIE_BREAK, 1 - TIE_BREAK).logit()


class Ballot(nn.Module):
    """A head that knows how many outputs it has."""

    def __init__(self, head: nn.Module, num_outputs: int) -> None:
        super().__init__()
        self.head = head
        self.num_outputs = num_outputs

    def forward(self, rows_nd: torch.Tensor) -> torch.Tensor:
        outputs_no: torch.Tensor = self.head(rows_nd)
        return outputs_no
