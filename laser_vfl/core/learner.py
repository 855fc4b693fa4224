"""One client's representation model and fusion head, and how a step's gradient changes them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.fusion import Task, weighted_loss
from laser_vfl.core.joint_components import JointComponents
from laser_vfl.core.learner_state import Buffers, read_state, restore_state
from laser_vfl.core.method import Method
from laser_vfl.core.noise import Phase, Release
from laser_vfl.core.optimizers import without_compiler
from laser_vfl.core.place import Place
from laser_vfl.core.plan import Plan, plan_step
from laser_vfl.core.randomness import Purpose, torch_seed
from laser_vfl.core.schedule import Step
from laser_vfl.core.tasks import Tasks

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

    def __init__(
        self,
        place: Place,
        representation: nn.Module,
        fusion: nn.Module | None,
        *,
        task: Task = "multiclass",
        optimizer: OptimizerSettings | None = None,
        device: torch.device | None = None,
        precision: Literal["float32", "bfloat16"] = "float32",
        release: Release | None = None,
        method: Method | None = None,
        scratch: JointComponents | None = None,
    ) -> None:
        self.place = place
        self.method = method or Method()
        self.device = device or torch.device("cpu")
        self.models = nn.ModuleDict({"representation": representation})
        if fusion is not None:
            self.models["fusion"] = fusion
        self.scratch = scratch
        if scratch is not None:
            self.models["scratch"] = scratch
        self.models.to(self.device).train()
        self.task: Task = task
        self._precision = precision
        self._release = release
        self.optimizer_settings = optimizer or OptimizerSettings()
        self._optimizer = build_optimizer(
            self.optimizer_settings, [p for p in self.models.parameters() if p.requires_grad]
        )
        self._batch_norms = {
            name: [module for module in model.modules() if isinstance(module, _BatchNorm)]
            for name, model in self.models.items()
        }
        self._buffers = Buffers(self.models)

    def begin_step(self) -> None:
        """Remember what a forward pass changes, so that the step can be dropped."""
        self._buffers.remember()

    def drop_step(self) -> None:
        """Undo what a step has changed since it began; it leaves no trace."""
        self._buffers.restore()
        self._optimizer.zero_grad(set_to_none=True)

    def plan(
        self, step: Step, alignment: ClientAlignment, participants: int, *, predicts: bool = False
    ) -> Plan | None:
        """Return what this client does in a step; None when nothing there concerns it."""
        place, method = self.place, self.method
        uses = method.predicts_from if predicts else method.learns_from
        plan = plan_step(
            step,
            alignment,
            client=place.client,
            participants=participants,
            heads=place.heads,
            uses=lambda observed: uses(observed, place),
        )
        return plan if plan is not None and plan.learns else None

    def represent(
        self, inputs: torch.Tensor, step: int, patterns: Sequence[int] = ()
    ) -> torch.Tensor:
        """Return the representations (b, d) of a batch, ready to be differentiated.

        `patterns` are the observed sets that occur in it.
        """
        self._reseed(Purpose.REPRESENTATION_NOISE, step)
        model = self.models["representation"]
        with self._running_statistics("representation", len(inputs)), self._autocast():
            representation_bd = self.method.represent(model, inputs, self.place, patterns)
        return self._clipped(representation_bd.float())

    def embed(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the representations (b, d) of a batch as they are when predicting."""
        with self.evaluating():
            representation_bd = self.method.embed(self.models, inputs, self.place, self.task)
        return self._clipped(representation_bd.float())

    def released(self, own_bd: torch.Tensor, phase: Phase, step: int) -> torch.Tensor:
        """Return what leaves this client of representations in host memory."""
        return own_bd if self._release is None else self._release.batch(own_bd, phase, step)

    def distil(self, inputs: torch.Tensor, plan: Plan, progress: float) -> None:
        """Learn what joint components look like from here; nobody else is needed for it."""
        assert self.scratch is not None
        self._reseed(Purpose.REPRESENTATION_NOISE, plan.step)
        loss = self.method.distillation_loss(
            self.models["representation"], self.scratch, inputs, torch.from_numpy(plan.rows)
        )
        torch.autograd.backward(loss)
        self.update(progress)

    @property
    def published(self) -> nn.ModuleDict:
        """The models without what only training needs."""
        return nn.ModuleDict({k: model for k, model in self.models.items() if k != "scratch"})

    def columns(self, peer: int) -> torch.Tensor | None:
        """Return which columns of this client's representation a peer gets; None means all."""
        return self.method.columns(self.place, peer)

    def draw_tasks(self, plan: Plan) -> Tasks:
        """Sample the subsets that this client's head predicts in a step."""
        tasks = self.method.tasks(plan, self.place)
        return tasks if self.device.type == "cpu" else tasks.to(self.device)

    def loss(
        self,
        step: int,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        targets_b: torch.Tensor,
        label_weights_b: torch.Tensor,
    ) -> torch.Tensor:
        """Return this head's part of the step's loss."""
        self._reseed(Purpose.FUSION_NOISE, step)
        with self._running_statistics("fusion", len(tasks.sample_n)), self._autocast():
            outputs_no = self.method.outputs(self.models["fusion"], tasks, representations_bpd)
            return weighted_loss(self.task, tasks, outputs_no, targets_b, label_weights_b)

    def predict(self, plan: Plan, tasks: Tasks, representations_bpd: torch.Tensor) -> torch.Tensor:
        """Return the outputs for tasks of enumerated subsets, as they are when predicting."""
        with self.evaluating():
            outputs_no = self.method.predictions(
                self.models["fusion"], tasks, representations_bpd, plan, self.place, self.task
            )
        return outputs_no.float()

    def update(self, progress: float) -> None:
        """Take an optimiser step; `progress` is the share of epochs done."""
        rate = learning_rate(self.optimizer_settings, progress)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._buffers.forget()

    def state(self) -> dict[str, torch.Tensor]:
        """Return copies of all that training goes on from: models, optimiser, randomness."""
        return read_state(self.models, self._optimizer)

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from a state; one that does not fit is refused and changes nothing."""
        restore_state(self.models, self._optimizer, tensors)
        self._buffers.forget()

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

    def _reseed(self, purpose: Purpose, step: int) -> None:
        """Make what a layer draws (dropout) a function of the step, so that it can be redone."""
        place = self.place
        seed = torch_seed(
            seed=place.settings.seed, purpose=purpose, moment=step, client=place.client
        )
        # torch.manual_seed records a traceback each time where there is no GPU: 1 ms.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

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

    def _autocast(self) -> AbstractContextManager[object]:
        if self._precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


@contextmanager
def initial_randomness(seed: int, client: int) -> Iterator[None]:
    """Build models under this, so that a client's initial parameters depend on nothing else."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed=seed, purpose=Purpose.INITIAL_PARAMETERS, client=client))
        yield


def build_optimizer(
    settings: OptimizerSettings, parameters: Iterable[torch.Tensor], *, fused: bool = False
) -> torch.optim.Optimizer:
    """Build what changes these parameters; if fused, in one pass over them each."""
    more = {"momentum": settings.momentum} if settings.name == "sgd" else {}
    kind: Callable[..., torch.optim.Optimizer] = without_compiler(_OPTIMIZERS[settings.name])
    return kind(
        parameters, lr=settings.lr, weight_decay=settings.weight_decay, fused=fused or None, **more
    )


def learning_rate(settings: OptimizerSettings, progress: float) -> float:
    """Return the rate when this share of the epochs is done."""
    if settings.schedule == "none":
        return settings.lr
    falling = (1 + math.cos(math.pi * progress)) / 2
    return settings.lr * (settings.lr_floor + (1 - settings.lr_floor) * falling)
