"""A small federation in one process, and the paper's full loss as the plainest possible loop."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from laser_vfl.core.alignment import ClientAlignment, align_rows
from laser_vfl.core.reference import Member
from laser_vfl.core.schedule.schedule import Schedule, Segment, Step
from laser_vfl.core.schedule.step_plan import Plan, plan_step
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.learner import FederationContext, Learner, OptimizerSettings
from laser_vfl.core.training.task_sampling import Tasks
from laser_vfl.methods.laser import Laser
from laser_vfl.methods.training_settings import TrainingSettings

torch.set_num_threads(1)

DIM = 4
FEATURES = 3
OUTPUTS = {"multiclass": 3, "binary": 1, "regression": 1}


def settings_of(**keys) -> TrainingSettings:
    return TrainingSettings.model_validate(
        {"representation_dim": DIM, "batch_size": 4, "epochs": 3, "seed": 11, **keys}
    )


def digests_of(samples: Sequence[int]) -> np.ndarray:
    """Blinded ids that keep the order of the sample numbers."""
    digests = np.zeros((len(samples), 32), dtype=np.uint8)
    digests[:, -8:] = np.array(samples, dtype=">u8").view(np.uint8).reshape(-1, 8)
    return digests


def subsets_with(client: int, blocks: Sequence[int]) -> list[tuple[int, ...]]:
    """All subsets that contain a client, spelt out without the code under test."""
    others = [i for i in blocks if i != client]
    return [
        tuple(sorted([client, *(o for j, o in enumerate(others) if choice >> j & 1)]))
        for choice in range(2 ** len(others))
    ]


@dataclass
class World:
    """Samples with their blocks, features and labels, and who holds which at which row."""

    observed: list[set[int]]
    num_clients: int
    heads: set[int]
    tasks: dict[int, str] = field(default_factory=dict)
    unlabelled: dict[int, set[int]] = field(default_factory=dict)
    """Samples without a label, by client."""

    def __post_init__(self) -> None:
        random = np.random.default_rng(5)
        num = len(self.observed)
        self.features = random.normal(size=(num, self.num_clients, FEATURES)).astype(np.float32)
        self.labels = random.integers(0, 3, size=(num, self.num_clients))
        self.rows = {
            k: random.permutation([n for n in range(num) if k in self.observed[n]]).astype(int)
            for k in range(self.num_clients)
        }
        self.alignments: list[ClientAlignment] = align_rows(
            [digests_of(self.rows[k]) for k in range(self.num_clients)]
        )

    @cached_property
    def models(self) -> dict[int, nn.ModuleDict]:
        return {k: self.models_of(k) for k in range(self.num_clients)}

    def task(self, client: int) -> str:
        return self.tasks.get(client, "multiclass")

    def models_of(self, client: int) -> nn.ModuleDict:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(100 + client)
            models = nn.ModuleDict(
                {"representation": nn.Sequential(nn.Linear(FEATURES, DIM), nn.Tanh())}
            )
            if client in self.heads:
                models["fusion"] = nn.Linear(DIM, OUTPUTS[self.task(client)])
        return models

    def target(self, client: int) -> torch.Tensor:
        """Targets by sample: class, 0/1 or value."""
        labels = torch.from_numpy(self.labels[:, client])
        if self.task(client) == "multiclass":
            return labels
        return (labels > 0).float() if self.task(client) == "binary" else labels.float() - 0.7

    def label_weight(self, client: int) -> torch.Tensor:
        """1 by sample, 0 where this client has no label."""
        without = self.unlabelled.get(client, set())
        return torch.tensor([float(n not in without) for n in range(len(self.observed))])

    def members(
        self, settings: TrainingSettings, optimizer: OptimizerSettings | None = None
    ) -> dict[int, Member]:
        return {k: self.member(k, settings, optimizer) for k in range(self.num_clients)}

    def member(
        self, client: int, settings: TrainingSettings, optimizer: OptimizerSettings | None = None
    ) -> Member:
        models = copy.deepcopy(self.models[client])
        learner = Learner(
            FederationContext(client, self.num_clients, mask_of(self.heads), settings),
            models["representation"],
            models["fusion"] if client in self.heads else None,
            task=self.task(client),
            optimizer=optimizer or OptimizerSettings(name="sgd", lr=0.5),
            method=Laser(),
        )
        rows = self.rows[client]
        has_head = client in self.heads
        return Member(
            learner,
            self.alignments[client],
            torch.from_numpy(self.features[rows, client]),
            self.target(client)[rows] if has_head else None,
            self.label_weight(client)[rows] if has_head else None,
        )

    def schedule(self, settings: TrainingSettings) -> Schedule:
        return Schedule(
            self.alignments[0].groups,
            seed=settings.seed,
            batch_size=settings.batch_size,
            batching=settings.batching,
        )

    def whole_step(self) -> Step:
        """All samples in one step."""
        groups = self.alignments[0].groups
        return Step(0, tuple(Segment(g, np.arange(group.size)) for g, group in enumerate(groups)))

    def plan(self, client: int, step: Step | None = None) -> Plan:
        plan = plan_step(
            step or self.whole_step(),
            self.alignments[client],
            client=client,
            participants=2**self.num_clients - 1,
            heads=mask_of(self.heads),
        )
        assert plan is not None
        return plan

    def samples(self, plan: Plan) -> np.ndarray:
        """The sample at each row of a plan."""
        return self.rows[plan.client][plan.rows]

    def stack(self, plan: Plan, models: dict[int, nn.ModuleDict]) -> torch.Tensor:
        """Representations (b, p, d) of a plan's samples; noise where a block is missing."""
        samples = self.samples(plan)
        columns = []
        for block in plan.blocks:
            held = torch.tensor([block in self.observed[n] for n in samples])[:, None]
            inputs = torch.from_numpy(self.features[samples, block])
            columns.append(torch.where(held, models[block]["representation"](inputs), 1e3))
        return torch.stack(columns, dim=1)

    def full_losses(self, models: dict[int, nn.ModuleDict], weight: str) -> list[torch.Tensor]:
        """The paper's loss of each sample: every head, every subset of the observed blocks."""
        per_sample = []
        for n, observed in enumerate(self.observed):
            representations = {
                i: models[i]["representation"](torch.from_numpy(self.features[n, i]).double())
                for i in observed
            }
            total = torch.zeros((), dtype=torch.float64)
            for k in sorted(observed & self.heads):
                if n in self.unlabelled.get(k, set()):
                    continue
                for subset in subsets_with(k, sorted(observed)):
                    mean = sum(representations[i] for i in subset) / len(subset)
                    output = models[k]["fusion"](mean)
                    counted = self.heads & set(subset) if weight == "heads" else subset
                    total = total + plain_loss(self, k, n, output) / len(counted)
            per_sample.append(total)
        return per_sample

    def doubles(self) -> dict[int, nn.ModuleDict]:
        return {k: copy.deepcopy(models).double() for k, models in self.models.items()}


def plain_loss(world: World, client: int, sample: int, output: torch.Tensor) -> torch.Tensor:
    """The loss of one prediction, (outputs,)."""
    target = world.target(client)[sample]
    if world.task(client) == "multiclass":
        return -functional.log_softmax(output, dim=0)[target]
    if world.task(client) == "binary":
        sign = 1 if target > 0 else -1
        return -functional.logsigmoid(sign * output[0])
    return (output[0] - target) ** 2


def gradients(loss: torch.Tensor, models: dict[int, nn.ModuleDict]) -> dict[str, torch.Tensor]:
    """The gradient of a loss by client and parameter; zero where it does not depend on one."""
    named = {f"{k}.{n}": p for k, m in models.items() for n, p in m.named_parameters()}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(named.items(), found, strict=True)
    }


def assert_same(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Equal to the accuracy of float32, relative to the largest entry of all."""
    assert got.keys() == expected.keys()
    scale = max(float(value.abs().max()) for value in expected.values())
    assert scale > 0
    for name, value in expected.items():
        error = float((got[name].double() - value.double()).abs().max())
        assert error <= 2e-6 * scale, f"{name} is off by {error:g} of {scale:g}"


def drawn(tasks: Tasks, plan: Plan) -> list[tuple[int, tuple[int, ...], float]]:
    """The (position, subset, weight) of each task; checks that each row averages its subset."""
    averaging_np = tasks.averaging_btp.flatten(0, 1)
    if tasks.kept_n is not None:
        averaging_np = averaging_np[tasks.kept_n]
    found = []
    for row, position, weight in zip(
        averaging_np.tolist(), tasks.sample_n.tolist(), tasks.weight_n.tolist(), strict=True
    ):
        subset = tuple(b for b, share in zip(plan.blocks, row, strict=True) if share)
        assert all(share in (0, np.float32(1 / len(subset))) for share in row)
        found.append((position, subset, weight))
    return found
