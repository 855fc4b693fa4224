"""What a method is: the tasks it trains on, and three parts that most methods share.

`BlockUse` says whose blocks are used, `ModelUse` how models are built and run, and `Prediction` how
a head predicts. A method replaces the parts in which it differs. It may also have stages before the
training of its heads (`core/preparation.py`). The methods themselves are in `laser_vfl/methods`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.preparation import Preparation
from laser_vfl.core.randomness import RandomStream, random_words
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.table_form import TableForm
from laser_vfl.core.training.fusion import Task, fused_representations
from laser_vfl.core.training.task_sampling import Tasks

Rows = npt.NDArray[np.float32]
Masks = npt.NDArray[np.uint64]
Answers = Mapping[int, tuple[npt.NDArray[np.integer[Any]] | slice, Rows]]
"""By client: for which rows of a request its representations are, and these."""


@dataclass(frozen=True)
class ModelParts:
    """How to build one client's models: the plain ones that its configuration names."""

    representation: Callable[[tuple[int, ...], TableForm | None], nn.Module]
    """Given the shape of a flat row, and how rows stand in memory if that is another one."""
    fusion: Callable[[], nn.Module]
    input_shape: tuple[int, ...]
    """Of a row of the block, with categories one-hot."""
    num_outputs: int
    """Of the head; 0 without one."""
    classes: tuple[str, ...] = ()
    """What a head decides between; none for regression."""
    form: TableForm | None = None
    """How a row of the block stands in memory; None for one of several dimensions."""

    def of_block(self) -> nn.Module:
        """Build a representation model that takes rows of the block as they are in memory."""
        return self.representation(self.input_shape, self.form)


class BlockUse:
    """Which clients predict, and from which blocks; here, all labelled ones from all blocks."""

    def heads(self, labelled: int) -> int:
        """Return the clients that predict, of those that have labels."""
        return labelled

    def learns_from(self, observed: int, context: FederationContext) -> int:
        """Return the blocks that a client works with in training on samples of an observed set.

        Its own is among them. 0 means that it leaves such samples out.
        """
        return observed

    def predicts_from(self, observed: int, context: FederationContext) -> int:
        """Return the blocks that a client works with in predicting such samples."""
        return observed

    def asks(self, context: FederationContext) -> int:
        """Return the clients that a client asks when it predicts."""
        return context.everyone & ~(1 << context.client)

    def has_predictor(self, subset: int, context: FederationContext) -> bool:
        """Tell whether a client has a predictor for a subset that it is in."""
        return True

    def used(self, observed: int, context: FederationContext) -> int:
        """Return with which subset a sample of an observed set is predicted; 0 is a guess."""
        return observed


class ModelUse:
    """How a client's models are built and run in training; here, one of each kind."""

    def representation(self, parts: ModelParts, context: FederationContext) -> nn.Module:
        """Build the representation model."""
        return parts.of_block()

    def fusion(self, parts: ModelParts, context: FederationContext) -> nn.Module:
        """Build the head."""
        return parts.fusion()

    def represent(
        self,
        model: nn.Module,
        inputs: torch.Tensor,
        context: FederationContext,
        patterns: Sequence[int],
    ) -> torch.Tensor:
        """Return representations to train with, of samples with these observed sets."""
        representation: torch.Tensor = model(inputs)
        return representation

    def exchanged_width(self, context: FederationContext) -> int:
        """Return how many columns of its representation a client sends a peer."""
        return context.settings.representation_dim

    def columns(self, context: FederationContext, peer: int) -> torch.Tensor | None:
        """Return which columns of a client's representation concern a peer; None means all."""
        return None


class Prediction:
    """How heads predict; here, from the mean of the representations that there are."""

    def embed(
        self, models: nn.ModuleDict, inputs: torch.Tensor, context: FederationContext, task: Task
    ) -> torch.Tensor:
        """Return what a client contributes to predictions."""
        representation: torch.Tensor = models["representation"](inputs)
        return representation

    def outputs(
        self, fusion: nn.Module, tasks: Tasks, representations_bpd: torch.Tensor
    ) -> torch.Tensor:
        """Return a head's outputs for its tasks."""
        outputs_no: torch.Tensor = fusion(fused_representations(tasks, representations_bpd))
        return outputs_no

    def evaluate(
        self,
        fusion: nn.Module,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        plan: Plan,
        context: FederationContext,
        task: Task,
    ) -> torch.Tensor:
        """Return the outputs that decide what is predicted, for tasks of enumerated subsets."""
        return self.outputs(fusion, tasks, representations_bpd)

    def fused_width(self, context: FederationContext) -> int:
        """Return how wide a row is that `fuse` makes."""
        return context.settings.representation_dim

    def fuse(
        self, own_nd: Rows, answers: Answers, context: FederationContext
    ) -> tuple[Rows, Masks]:
        """Average the representations of each row, and say whose they are."""
        total_nd, num_blocks, blocks = added_up(own_nd, answers, context)
        return total_nd / num_blocks, blocks

    def answers(
        self,
        fusion: nn.Module,
        fused_nd: torch.Tensor,
        task: Task,
        chance: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Return the outputs for rows that `fuse` made; ties and guesses are drawn from `chance`.

        A daemon has a generator for this alone: training, in another thread, has its own.
        """
        outputs_no: torch.Tensor = fusion(fused_nd)
        return outputs_no


class Method(ABC):
    """One way to train and predict. It has no state: all it depends on is in the context."""

    blocks: BlockUse = BlockUse()
    models: ModelUse = ModelUse()
    prediction: Prediction = Prediction()
    preparation: Preparation = Preparation()
    releases_representations = True
    """Whether what a client sends of a sample is one representation, which can be bounded."""

    @abstractmethod
    def tasks(self, plan: Plan, context: FederationContext) -> Tasks:
        """Return what a head learns to predict in a step, and with which weights."""


def added_up(
    own_nd: Rows, answers: Answers, context: FederationContext
) -> tuple[Rows, Rows, Masks]:
    """Return the sum of each row's representations, how many they are (n, 1), and whose."""
    total_nd = own_nd.copy()
    everywhere, partly = [context.client], []
    for client, (places, rows) in answers.items():
        if isinstance(places, slice) and places == slice(None):
            total_nd += rows
            everywhere.append(client)
        else:
            total_nd[places] += rows
            partly.append((client, places))
    num_blocks = np.full((len(total_nd), 1), len(everywhere), dtype=np.float32)
    blocks = np.full(len(total_nd), mask_of(everywhere), dtype=np.uint64)
    for client, places in partly:
        num_blocks[places] += 1
        blocks[places] |= np.uint64(mask_of([client]))
    return total_nd, num_blocks, blocks


def chances(like_no: torch.Tensor, chance: torch.Generator | None) -> torch.Tensor:
    """Return random numbers from -1/2 to 1/2 in the shape of outputs."""
    return torch.rand(like_no.shape, generator=chance).to(like_no) - 0.5


def guesses(num: int, width: int, context: FederationContext, *, counter: int) -> npt.NDArray[Any]:
    """Return random numbers from 0 to 1, (num, width), that everybody can recompute."""
    words = random_words(
        num * width,
        seed=context.settings.seed,
        stream=RandomStream.GUESSES,
        counter=counter,
        client=context.client,
    )
    return ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).reshape(num, width)
