"""The models that one step computes with, and what the step would change in them.

Where steps wait for each other, these are the models that are trained. Where a step begins before
earlier ones are applied, each step has copies of its own: they keep the parameters that the step
began with, for its backward passes, and are thrown away if it is dropped.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import Method
from laser_vfl.core.privacy.label_noise import LabelNoise
from laser_vfl.core.randomness import RandomStream, torch_seed
from laser_vfl.core.training.fusion import Task, weighted_loss
from laser_vfl.core.training.layer_randomness import LayerRandomness
from laser_vfl.core.training.task_sampling import Tasks


class StepModels:
    """A representation model and a head, and their forward passes in training."""

    def __init__(
        self,
        models: nn.ModuleDict,
        context: FederationContext,
        method: Method,
        task: Task,
        randomness: LayerRandomness,
        clipped: Callable[[torch.Tensor], torch.Tensor],
        autocast: Callable[[], AbstractContextManager[object]],
        label_noise: LabelNoise | None,
    ) -> None:
        self.models = models
        self._context = context
        self.method = method
        self.task: Task = task
        self._randomness = randomness
        self._clipped = clipped
        self._autocast = autocast
        self._label_noise = label_noise
        self._batch_norms = {
            name: [module for module in model.modules() if isinstance(module, _BatchNorm)]
            for name, model in models.items()
        }

    def represent(
        self, inputs: torch.Tensor, step: int, patterns: Sequence[int] = ()
    ) -> torch.Tensor:
        """Return the representations (b, d) of a batch, ready to be differentiated.

        `patterns` are the observed sets that occur in it.
        """
        model = self.models["representation"]
        with (
            self.drawing(RandomStream.REPRESENTATION_NOISE, step),
            self._running_statistics("representation", len(inputs)),
            self._autocast(),
        ):
            representation_bd = self.method.models.represent(model, inputs, self._context, patterns)
        return self._clipped(representation_bd.float())

    def loss(
        self,
        step: int,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        targets_b: torch.Tensor,
        label_weights_b: torch.Tensor,
    ) -> torch.Tensor:
        """Return this head's part of the step's loss."""
        with (
            self.drawing(RandomStream.FUSION_NOISE, step),
            self._running_statistics("fusion", len(tasks.sample_n)),
            self._autocast(),
        ):
            outputs_no = self.method.prediction.outputs(
                self.models["fusion"], tasks, representations_bpd
            )
            return weighted_loss(
                self.task, tasks, outputs_no, targets_b, label_weights_b, self._label_noise
            )

    def drawing(self, stream: RandomStream, step: int) -> AbstractContextManager[None]:
        """Make what a layer draws (dropout) a function of the step, so that it can be redone."""
        context = self._context
        return self._randomness.seeded(
            torch_seed(
                seed=context.settings.seed, stream=stream, counter=step, client=context.client
            )
        )

    @contextmanager
    def _running_statistics(self, model: str, num_rows: int) -> Iterator[None]:
        """A single row has no variance, so batch norm falls back on its running statistics."""
        batch_norms = self._batch_norms[model] if num_rows == 1 else []
        for module in batch_norms:
            module.eval()
        try:
            yield
        finally:
            for module in batch_norms:
                module.train()


class CopiedModels(StepModels):
    """Copies of the models that are trained, for a step with others under way beside it."""

    def __init__(self, trained: nn.ModuleDict, *shared: Any) -> None:
        """`shared` is what all steps of a learner share."""
        copies = copy.deepcopy(trained)
        copies.zero_grad(set_to_none=True)
        super().__init__(copies, *shared)
        self._own: list[torch.Tensor] = [p for p in copies.parameters() if p.requires_grad]
        self._trained: list[torch.Tensor] = [p for p in trained.parameters() if p.requires_grad]
        self._with_buffers = [
            (own, theirs)
            for own, theirs in zip(copies.modules(), trained.modules(), strict=True)
            if theirs._buffers
        ]

    @torch.no_grad()
    def follow(self) -> None:
        """Become what the trained models are now."""
        if self._own:
            torch._foreach_copy_(self._own, self._trained)
        for own, theirs in self._with_buffers:
            _take_buffers(own, theirs)

    @torch.no_grad()
    def hand_over(self) -> None:
        """Give the trained models the gradients of this step, and the buffers that it has left."""
        for mine, its in zip(self._own, self._trained, strict=True):
            its.grad, mine.grad = mine.grad, None
        for own, theirs in self._with_buffers:
            _take_buffers(theirs, own)

    def forget(self) -> None:
        """Let go of gradients."""
        for parameter in self._own:
            parameter.grad = None


def _take_buffers(own: nn.Module, theirs: nn.Module) -> None:
    """Copy buffers; a forward pass may have put another tensor in the place of one."""
    for name, buffer in theirs._buffers.items():
        before = own._buffers[name]
        if buffer is None or before is None or before.shape != buffer.shape:
            own._buffers[name] = None if buffer is None else buffer.detach().clone()
        else:
            before.copy_(buffer)
