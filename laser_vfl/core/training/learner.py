"""One client's representation model and fusion head, and how a step's gradient changes them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import ConfigError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import Method
from laser_vfl.core.preparation import PreparationState
from laser_vfl.core.privacy.label_noise import LabelNoise
from laser_vfl.core.privacy.noise import Phase, Release
from laser_vfl.core.randomness import RandomStream
from laser_vfl.core.schedule.schedule import Step
from laser_vfl.core.schedule.step_plan import Plan, plan_step
from laser_vfl.core.training.fusion import Task
from laser_vfl.core.training.layer_randomness import LayerRandomness
from laser_vfl.core.training.learner_state import Buffers, read_state, restore_state
from laser_vfl.core.training.optimizers import without_compiler
from laser_vfl.core.training.step_models import CopiedModels, StepModels
from laser_vfl.core.training.task_sampling import Tasks

_OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


@dataclass(frozen=True)
class OptimizerSettings:
    """How a client changes its own parameters; nobody else needs to know."""

    name: Literal["sgd", "adam", "adamw"] = "adam"
    lr: float = 0.001
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: Literal["none", "cosine"] = "none"
    lr_floor: float = 0.0


class Learner:
    """The models of one client with their optimiser. It computes; it neither sends nor waits."""

    in_steps: type[StepModels] = StepModels
    """What runs its models in steps that follow one another; benchmarks have others."""

    def __init__(
        self,
        context: FederationContext,
        representation: nn.Module,
        fusion: nn.Module | None,
        *,
        task: Task = "multiclass",
        optimizer: OptimizerSettings | None = None,
        device: torch.device | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
        release: Release | None = None,
        label_noise: LabelNoise | None = None,
        method: Method,
        scratch: PreparationState | None = None,
    ) -> None:
        self.context = context
        self.method = method
        self.device = device or torch.device("cpu")
        self.models = nn.ModuleDict({"representation": representation})
        if fusion is not None:
            self.models["fusion"] = fusion
        self.scratch = scratch
        if scratch is not None:
            self.models["scratch"] = scratch
        self.models.to(self.device).train()
        self.task: Task = task
        self.label_noise = label_noise
        """How the labels that it learns from were randomised; None if they are true."""
        self._precision = precision
        self._release = release
        self._randomness = LayerRandomness(self.device)
        self.optimizer_settings = optimizer or OptimizerSettings()
        self._optimizer = build_optimizer(
            self.optimizer_settings, [p for p in self.models.parameters() if p.requires_grad]
        )
        self._buffers = Buffers(self.models)
        shared = (context, method, task, self._randomness, self._clipped, self._autocast)
        self._shared = (*shared, label_noise)
        self.in_place = self.in_steps(self.models, *self._shared)
        """What a step computes with if steps follow one another: the models that are trained."""
        self._free: list[CopiedModels] = []
        """Copies that no step computes with at present."""
        if context.settings.pipeline:
            self._free.append(self._copies())

    def begin_step(self) -> StepModels:
        """Return the models that a step computes with, in the state that training has reached.

        They are the learner's own, if steps follow one after another: what a forward pass changes
        in them is remembered, so that the step can be dropped. If a step may begin before an
        earlier one is applied, they are copies, one for each step that is under way.
        """
        if not self.context.settings.pipeline:
            self._buffers.remember()
            return self.in_place
        copies = self._free.pop() if self._free else self._copies()
        copies.follow()
        return copies

    def drop_step(self, models: StepModels) -> None:
        """Undo what a step has changed since it began; it leaves no trace."""
        if isinstance(models, CopiedModels):
            models.forget()
            self._free.append(models)
        else:
            self._buffers.restore()
            self._optimizer.zero_grad(set_to_none=True)

    def apply_step(self, models: StepModels, progress: float) -> None:
        """Take an optimiser step by the gradients of these models; they are given back."""
        if isinstance(models, CopiedModels):
            models.hand_over()
            self._free.append(models)
        self._update(progress, self.context.settings.pipeline)

    def plan(
        self, step: Step, alignment: ClientAlignment, participants: int, *, predicts: bool = False
    ) -> Plan | None:
        """Return what this client does in a step; None when nothing there concerns it."""
        context, blocks = self.context, self.method.blocks
        uses = blocks.predicts_from if predicts else blocks.learns_from
        plan = plan_step(
            step,
            alignment,
            client=context.client,
            participants=participants,
            heads=context.heads,
            uses=lambda observed: uses(observed, context),
        )
        return plan if plan is not None and plan.learns else None

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the representations (b, d) of a batch as they are when predicting."""
        with self.evaluating():
            representation_bd = self.method.prediction.embed(
                self.models, inputs, self.context, self.task
            )
        return self._clipped(representation_bd.float())

    def released(self, own_bd: torch.Tensor, phase: Phase, step: int) -> torch.Tensor:
        """Return what leaves this client of representations in host memory."""
        return own_bd if self._release is None else self._release.batch(own_bd, phase, step)

    def train_alone(self, inputs: torch.Tensor, plan: Plan, progress: float) -> None:
        """Do a step of the stage in which clients train alone, before their heads are trained."""
        assert self.scratch is not None
        rows = torch.from_numpy(plan.rows)
        with self.in_place.drawing(RandomStream.REPRESENTATION_NOISE, plan.step):
            loss = self.method.preparation.local_loss(
                self.models["representation"], self.scratch, inputs, rows
            )
        torch.autograd.backward(loss)
        self._update(progress, 0)

    @property
    def published(self) -> nn.ModuleDict:
        """The models without what only training needs."""
        return nn.ModuleDict({k: model for k, model in self.models.items() if k != "scratch"})

    def columns(self, peer: int) -> torch.Tensor | None:
        """Return which columns of this client's representation a peer gets; None means all."""
        return self.method.models.columns(self.context, peer)

    @property
    def exchanged_width(self) -> int:
        """How wide the rows are that clients send each other."""
        return self.method.models.exchanged_width(self.context)

    def draw_tasks(self, plan: Plan) -> Tasks:
        """Sample the subsets that this client's head predicts in a step."""
        tasks = self.method.tasks(plan, self.context)
        return tasks if self.device.type == "cpu" else tasks.to(self.device)

    def predict(self, plan: Plan, tasks: Tasks, representations_bpd: torch.Tensor) -> torch.Tensor:
        """Return the outputs for tasks of enumerated subsets, as they are when predicting."""
        with self.evaluating():
            outputs_no = self.method.prediction.evaluate(
                self.models["fusion"], tasks, representations_bpd, plan, self.context, self.task
            )
        return outputs_no.float()

    def _update(self, progress: float, pipeline: int) -> None:
        """Take an optimiser step; `progress` is the share of epochs done."""
        rate = learning_rate(self.optimizer_settings, progress, pipeline)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._buffers.forget()

    def state(self) -> dict[str, torch.Tensor]:
        """Return copies of all that training goes on from: models, optimiser, randomness."""
        return read_state(self.models, self._optimizer, self._randomness.state)

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from a state; one that does not fit is refused and changes nothing."""
        restore_state(self.models, self._optimizer, tensors)
        self._randomness.state = tensors["random"].clone()
        self._buffers.forget()
        self._free.clear()

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Predict rather than train: running statistics, no dropout, no gradients."""
        self.models.eval()
        try:
            with torch.no_grad(), self._autocast():
                yield
        finally:
            self.models.train()

    def _clipped(self, rows_bd: torch.Tensor) -> torch.Tensor:
        return rows_bd if self._release is None else self._release.clipped(rows_bd)

    def _copies(self) -> CopiedModels:
        try:
            return CopiedModels(self.published, *self._shared)
        except Exception as error:
            raise ConfigError(
                f"with training.pipeline, models are copied, and one of this client's cannot be: "
                f"{type(error).__name__}: {error}",
                hint="have the model's class support copy.deepcopy, or ask for pipeline: 0",
            ) from error

    def _autocast(self) -> AbstractContextManager[object]:
        if self._precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def build_optimizer(
    settings: OptimizerSettings, parameters: Iterable[torch.Tensor], *, fused: bool = False
) -> torch.optim.Optimizer:
    """Build what changes these parameters; if fused, in one pass over them each."""
    more = {"momentum": settings.momentum} if settings.name == "sgd" else {}
    kind: Callable[..., torch.optim.Optimizer] = without_compiler(_OPTIMIZERS[settings.name])
    return kind(
        parameters, lr=settings.lr, weight_decay=settings.weight_decay, fused=fused or None, **more
    )


def learning_rate(settings: OptimizerSettings, progress: float, pipeline: int = 0) -> float:
    """Return the rate when this share of the epochs is done.

    Gradients that are `pipeline` steps old take a lower rate, or training becomes unstable.
    """
    rate = settings.lr * delay_factor(pipeline)
    if settings.schedule == "none":
        return rate
    falling = (1 + math.cos(math.pi * progress)) / 2
    return rate * (settings.lr_floor + (1 - settings.lr_floor) * falling)


def delay_factor(pipeline: int) -> float:
    """Return what the learning rate is multiplied by where gradients are so many steps old."""
    return 1 / math.sqrt(1 + pipeline)
