"""What a method is: who predicts, from which blocks, which tasks it trains on, how it predicts.

`Method` is LASER-VFL. The other methods are in `laser_vfl/methods` and say what they do otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.fusion import Task, fused_representations
from laser_vfl.core.joint_components import JointComponents
from laser_vfl.core.place import Place
from laser_vfl.core.plan import Plan
from laser_vfl.core.randomness import Purpose, random_words
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.tasks import Tasks, sample_tasks

Rows = npt.NDArray[np.float32]
Masks = npt.NDArray[np.uint64]
Answers = Mapping[int, tuple[npt.NDArray[np.integer[Any]] | slice, Rows]]
"""By client: for which rows of a question its representations are, and these."""


@dataclass(frozen=True)
class Parts:
    """How to build one client's models: the plain ones that its configuration names."""

    representation: Callable[[tuple[int, ...]], nn.Module]
    """Given the shape of a row."""
    fusion: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    num_outputs: int
    """Of the head; 0 without one."""
    classes: tuple[str, ...] = ()
    """What a head decides between; none for regression."""


class Method:
    """One representation model and one head a client, which share all subsets of blocks."""

    releases_representations = True
    """Whether what a client lets out of a sample is one representation, and nothing else."""

    def heads(self, labelled: int) -> int:
        """Return who predicts, of those that have labels."""
        return labelled

    def learns_from(self, observed: int, place: Place) -> int:
        """Return the blocks that a client works with in training on samples of an observed set.

        Its own is among them. 0 means that it leaves such samples out.
        """
        return observed

    def predicts_from(self, observed: int, place: Place) -> int:
        """Return the same for predicting them."""
        return observed

    def asks(self, place: Place) -> int:
        """Return whom a client asks when it predicts."""
        return place.everyone & ~(1 << place.client)

    def representation(self, parts: Parts, place: Place) -> nn.Module:
        """Build what turns a client's features into its representation."""
        return parts.representation(parts.input_shape)

    def fusion(self, parts: Parts, place: Place) -> nn.Module:
        """Build what turns representations into outputs."""
        return parts.fusion()

    def scratch(self, place: Place, alignment: ClientAlignment) -> JointComponents | None:
        """Build what stages before the training leave behind; it is no part of the model."""
        return None

    def distillation_loss(
        self,
        representation: nn.Module,
        components: JointComponents,
        inputs: torch.Tensor,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """Return what is made smaller in the stage of distillation, where there is one."""
        raise AssertionError("this method has no such stage")

    def columns(self, place: Place, peer: int) -> torch.Tensor | None:
        """Return which columns of a client's representation concern a peer; None means all."""
        return None

    def represent(
        self, model: nn.Module, inputs: torch.Tensor, place: Place, patterns: Sequence[int]
    ) -> torch.Tensor:
        """Return representations to train with, of samples with these observed sets."""
        representation: torch.Tensor = model(inputs)
        return representation

    def embed(
        self, models: nn.ModuleDict, inputs: torch.Tensor, place: Place, task: Task
    ) -> torch.Tensor:
        """Return what a client contributes to predictions."""
        representation: torch.Tensor = models["representation"](inputs)
        return representation

    def tasks(self, plan: Plan, place: Place) -> Tasks:
        """Return what a head predicts in a step, and with which weights."""
        return sample_tasks(
            plan,
            place.settings,
            num_clients=place.num_clients,
            heads=place.heads,
            groups=place.groups,
        )

    def outputs(
        self, fusion: nn.Module, tasks: Tasks, representations_bpd: torch.Tensor
    ) -> torch.Tensor:
        """Return a head's outputs for its tasks."""
        outputs_no: torch.Tensor = fusion(fused_representations(tasks, representations_bpd))
        return outputs_no

    def predictions(
        self,
        fusion: nn.Module,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        plan: Plan,
        place: Place,
        task: Task,
    ) -> torch.Tensor:
        """Return the outputs that decide what is predicted, for tasks of enumerated subsets."""
        return self.outputs(fusion, tasks, representations_bpd)

    def scores(self, subset: int, place: Place) -> bool:
        """Tell whether a client has a predictor for a subset that it is in."""
        return True

    def used(self, observed: int, place: Place) -> int:
        """Return with which subset a sample of an observed set is predicted; 0 is a guess."""
        return observed

    def fused_width(self, place: Place) -> int:
        """Return how wide a row is that `fuse` makes."""
        return place.settings.representation_dim

    def fuse(self, own_nd: Rows, answers: Answers, place: Place) -> tuple[Rows, Masks]:
        """Average the representations of each row, and say whose they are."""
        total_nd, num_blocks, blocks = added_up(own_nd, answers, place)
        return total_nd / num_blocks, blocks

    def answers(
        self,
        fusion: nn.Module,
        fused_nd: torch.Tensor,
        task: Task,
        chance: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Return the outputs for rows that `fuse` made; `chance` decides where nothing else does.

        A daemon has one for this alone: training, in another thread, uses torch's own.
        """
        outputs_no: torch.Tensor = fusion(fused_nd)
        return outputs_no


def added_up(own_nd: Rows, answers: Answers, place: Place) -> tuple[Rows, Rows, Masks]:
    """Return the sum of each row's representations, how many they are (n, 1), and whose."""
    total_nd = own_nd.copy()
    num_blocks = np.ones((len(total_nd), 1), dtype=np.float32)
    blocks = np.full(len(total_nd), mask_of([place.client]), dtype=np.uint64)
    for client, (places, rows) in answers.items():
        total_nd[places] += rows
        num_blocks[places] += 1
        blocks[places] |= np.uint64(mask_of([client]))
    return total_nd, num_blocks, blocks


def chances(like_no: torch.Tensor, chance: torch.Generator | None) -> torch.Tensor:
    """Return random numbers from -1/2 to 1/2 in the shape of outputs."""
    return torch.rand(like_no.shape, generator=chance).to(like_no) - 0.5


def guesses(num: int, width: int, place: Place, *, moment: int) -> npt.NDArray[Any]:
    """Return random numbers from 0 to 1, (num, width), that everybody can recompute."""
    words = random_words(
        num * width,
        seed=place.settings.seed,
        purpose=Purpose.GUESSES,
        moment=moment,
        client=place.client,
    )
    return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(num, width)
