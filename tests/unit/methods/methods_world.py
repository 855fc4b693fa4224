"""A small federation in one process, under any method."""

import copy
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from laser_vfl.core.alignment import align_rows
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import ModelParts
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.schedule.schedule import Segment, Step
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.learner import Learner, OptimizerSettings
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings

torch.set_num_threads(1)

DIM = 8
FEATURES = 3
CLASSES = ("blue", "green", "red")
OBSERVED = ({0, 1, 2}, {0, 1}, {2}, {1, 2}, {0}, {0, 1, 2}, {1}, {0, 2}, {0, 1, 2}, {1, 2})
"""Who holds each sample."""


def _representation(shape: tuple[int, ...], form: object) -> nn.Module:
    return nn.Sequential(nn.Linear(*shape, DIM), nn.Tanh(), nn.Linear(DIM, DIM))


class Small:
    """Three clients, or as many as are in `observed`; one step has all samples."""

    def __init__(
        self,
        method: str,
        labelled: Sequence[int] = (0, 1, 2),
        observed: Sequence[set[int]] = OBSERVED,
        *,
        optimizer: OptimizerSettings | None = None,
        **settings: object,
    ) -> None:
        self.observed = list(observed)
        self.num_clients = max(k for blocks in observed for k in blocks) + 1
        self.settings = TrainingSettings.model_validate(
            {"representation_dim": DIM, "batch_size": len(observed), "epochs": 200, "seed": 5}
            | {"method": method}
            | settings
        )
        self.method = method_named(self.settings.method)
        self.heads = self.method.blocks.heads(mask_of(labelled))
        random = np.random.default_rng(3)
        shape = (len(observed), self.num_clients, FEATURES)
        self.features = torch.from_numpy(random.normal(size=shape).astype(np.float32))
        self.labels = torch.from_numpy(random.integers(0, 3, size=len(observed)))
        self.rows = [
            [n for n, blocks in enumerate(observed) if k in blocks] for k in range(self.num_clients)
        ]
        self.alignments = align_rows([_digests(rows) for rows in self.rows])
        self.learners = [self._learner(k, optimizer) for k in range(self.num_clients)]
        self.oracle = Oracle({k: self._member(k) for k in range(self.num_clients)}, self.settings)

    @property
    def everyone(self) -> int:
        return (1 << self.num_clients) - 1

    def context(self, client: int) -> FederationContext:
        groups = self.alignments[0].groups
        return FederationContext(client, self.num_clients, self.heads, self.settings, groups)

    def plan(
        self, client: int, participants: int | None = None, *, predicts: bool = False
    ) -> Plan | None:
        groups = self.alignments[0].groups
        step = Step(0, tuple(Segment(g, np.arange(group.size)) for g, group in enumerate(groups)))
        members = self.everyone if participants is None else participants
        return self.learners[client].plan(step, self.alignments[client], members, predicts=predicts)

    def samples(self, plan: Plan) -> list[int]:
        return [self.rows[plan.client][row] for row in plan.rows]

    def doubles(self) -> list[nn.ModuleDict]:
        return [copy.deepcopy(learner.models).double() for learner in self.learners]

    def loss(self, sample: int, outputs_o: torch.Tensor) -> torch.Tensor:
        return -functional.log_softmax(outputs_o, dim=0)[self.labels[sample]]

    def input(self, sample: int, client: int) -> torch.Tensor:
        return self.features[sample, client].double()

    def parameters(self) -> dict[str, torch.Tensor]:
        return {
            f"{k}.{name}": value.detach().clone()
            for k, learner in enumerate(self.learners)
            for name, value in learner.models.named_parameters()
        }

    def _learner(self, client: int, optimizer: OptimizerSettings | None) -> Learner:
        context = self.context(client)
        parts = ModelParts(
            _representation,
            lambda: nn.Linear(DIM, len(CLASSES)),
            (FEATURES,),
            len(CLASSES),
            CLASSES,
        )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(40 + client)
            representation = self.method.models.representation(parts, context)
            has_head = self.heads >> client & 1
            fusion = self.method.models.fusion(parts, context) if has_head else None
        settings = optimizer or OptimizerSettings(name="sgd", lr=0.3)
        return Learner(context, representation, fusion, optimizer=settings, method=self.method)

    def _member(self, client: int) -> Member:
        rows = self.rows[client]
        inputs = self.features[rows, client]
        if not self.heads >> client & 1:
            return Member(self.learners[client], self.alignments[client], inputs)
        weights = torch.ones(len(rows))
        return Member(
            self.learners[client], self.alignments[client], inputs, self.labels[rows], weights
        )


def subsets_of(blocks: set[int]) -> list[tuple[int, ...]]:
    """All subsets but the empty one, spelt out without the code under test."""
    ordered = sorted(blocks)
    return [s for size in range(1, len(ordered) + 1) for s in combinations(ordered, size)]


def _digests(samples: Sequence[int]) -> np.ndarray:
    digests = np.zeros((len(samples), 32), dtype=np.uint8)
    digests[:, -8:] = np.array(samples, dtype=">u8").view(np.uint8).reshape(-1, 8)
    return digests
