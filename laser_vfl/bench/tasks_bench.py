"""The time of a step in one process: all tasks at once against one after another."""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.training.fusion import sample_losses
from laser_vfl.core.training.layer_randomness import initial_randomness
from laser_vfl.core.training.learner import Learner, OptimizerSettings
from laser_vfl.core.training.step_models import StepModels
from laser_vfl.core.training.task_sampling import Tasks
from laser_vfl.methods.laser import Laser
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.models import build_fusion, build_representation

FEATURES, WIDTH, CLASSES, BATCH = 140, 128, 12, 128
FEW, MANY = 4, 8


@dataclass(frozen=True)
class TasksBenchOptions:
    """How much work to measure."""

    steps: int
    repeats: int


def measure_tasks(options: TasksBenchOptions) -> dict[str, Any]:
    """Return times and ratios; the variants alternate, so that the machine treats them alike."""
    torch.set_num_threads(1)
    oracles = {
        "few": _oracle(FEW, Learner),
        "batched": _oracle(MANY, Learner),
        "looped": _oracle(MANY, _Looping),
    }
    seconds: dict[str, list[float]] = {name: [] for name in oracles}
    for oracle in oracles.values():
        oracle.run(5)
    for _ in range(options.repeats):
        for name, oracle in oracles.items():
            started = time.perf_counter()
            oracle.run(options.steps)
            seconds[name].append((time.perf_counter() - started) / options.steps)
    ms = {name: 1e3 * statistics.median(values) for name, values in seconds.items()}
    ratios = [b / a for a, b in zip(seconds["batched"], seconds["looped"], strict=True)]
    growth = [
        (many / MANY) / (few / FEW)
        for few, many in zip(seconds["few"], seconds["batched"], strict=True)
    ]
    return {
        "clients": MANY,
        "batch_size": BATCH,
        "width": WIDTH,
        "repeats": options.repeats,
        "steps": options.steps,
        "batched_ms": ms["batched"],
        "looped_ms": ms["looped"],
        "loop_to_batched": statistics.median(ratios),
        "few_ms": ms["few"] / FEW,
        "many_ms": ms["batched"] / MANY,
        "many_to_few": statistics.median(growth),
    }


class _LoopingModels(StepModels):
    """Predicts one task after another, each with a mean, a head and a loss of its own."""

    def loss(
        self,
        step: int,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        targets_b: torch.Tensor,
        label_weights_b: torch.Tensor,
    ) -> torch.Tensor:
        """Return the same loss, summed up task by task."""
        weight_bt = tasks.weight_n.view(len(targets_b), -1)
        total = representations_bpd.new_zeros(())
        for t in range(weight_bt.shape[1]):
            subset = tasks.averaging_btp[0, t].nonzero().squeeze(1)
            mean_bd = representations_bpd[:, subset].mean(dim=1)
            losses_b = sample_losses(self.task, self.models["fusion"](mean_bd), targets_b)
            total = total + (losses_b * weight_bt[:, t] * label_weights_b).sum()
        return total


class _Looping(Learner):
    in_steps = _LoopingModels


def _oracle(num_clients: int, kind: type[Learner]) -> Oracle:
    """Build a federation as wide as HAPT's, of samples that everybody holds."""
    settings = TrainingSettings.model_validate(
        {"representation_dim": WIDTH, "batch_size": BATCH, "epochs": 1000, "preset": "paper"}
    )
    num_rows, everyone = 8 * BATCH, (1 << num_clients) - 1
    alignment = ClientAlignment((Group(everyone, num_rows),), {0: np.arange(num_rows)})
    rng = np.random.default_rng(0)
    targets = torch.from_numpy(rng.integers(CLASSES, size=num_rows))
    members = {}
    for client in range(num_clients):
        with initial_randomness(0, client):
            learner = kind(
                FederationContext(client, num_clients, everyone, settings),
                _representation(),
                build_fusion("linear", representation_dim=WIDTH, num_outputs=CLASSES, options={}),
                optimizer=OptimizerSettings("sgd", lr=0.001, momentum=0.8),
                method=Laser(),
            )
        inputs = torch.from_numpy(rng.normal(size=(num_rows, FEATURES)).astype(np.float32))
        members[client] = Member(learner, alignment, inputs, targets, torch.ones(num_rows))
    return Oracle(members, settings)


def _representation() -> nn.Module:
    return build_representation(
        "mlp",
        input_shape=(FEATURES,),
        representation_dim=WIDTH,
        hidden=[WIDTH, WIDTH],
        options={},
    )
