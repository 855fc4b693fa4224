"""What a client without labels can guess of the others' labels from the gradients that it gets.

Four clients hold a quarter of the features each, and all samples. The first has no labels. It tries
to tell one head's positive samples from the gradients of its representations, by their norm (a rare
class has longer ones) and by their direction (like those of the few samples whose label it knows).
All runs in one process, by the oracle, which computes what the daemons do. The result is one JSON
object: for each data and protection the area under the curve (0.5 is guessing) of both attacks, in
the epoch that suits the attacker best, and of the attacked head's own predictions. Each is the
median over the seeds.

    python benchmarks/label_leakage.py
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from laser_vfl.core.alignment import DIGEST_BYTES, ClientAlignment, align_rows
from laser_vfl.core.privacy.noise import Phase, Release
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.schedule.schedule import Schedule
from laser_vfl.core.schedule.step_plan import plan_step
from laser_vfl.core.training.layer_randomness import initial_randomness
from laser_vfl.core.training.learner import (
    FederationContext,
    Learner,
    OptimizerSettings,
)
from laser_vfl.core.training.step_models import StepModels
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.models import build_fusion, build_representation

SPY, VICTIM, HEADS = 0, 1, 0b1110
EVERYONE = 0b1111
NUM_CLIENTS, WIDTH, HIDDEN = 4, 16, (32,)
KNOWN_SHARE = 0.05
RARE_SHARE = 0.1
NUM_SYNTHETIC = 1600
DIGIT = 8

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Blocks of features, the heads' targets by client, and who is to be found."""

    blocks: list[npt.NDArray[np.float32]]
    targets: dict[int, npt.NDArray[Any]]
    is_positive: npt.NDArray[np.bool_]

    @property
    def num_train(self) -> int:
        """How many of the samples are trained on; the rest shows what the victim has learnt."""
        return len(self.is_positive) * 3 // 4


@dataclass(frozen=True)
class Protection:
    """What is switched on, at all clients."""

    masked: bool = False
    clip: float | None = None
    noise: float = 0.0


PROTECTIONS = {
    "none": Protection(),
    "masked gradients": Protection(masked=True),
    "noise 0.5": Protection(clip=1.0, noise=0.5),
    "noise 2": Protection(clip=1.0, noise=2.0),
}


def one_rare_label(seed: int, *, shared: bool = True) -> Data:
    """Return normal features and one rare class; each head has the same labels, or its own."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(NUM_SYNTHETIC, 40)).astype(np.float32)
    labels: dict[int, npt.NDArray[Any]] = {}
    for client in range(1, NUM_CLIENTS):
        if shared and labels:
            labels[client] = labels[VICTIM]
            continue
        score = features @ random.normal(size=40) + random.normal(size=NUM_SYNTHETIC)
        labels[client] = (score > np.quantile(score, 1 - RARE_SHARE)).astype(np.float32)
    return Data(np.split(features, NUM_CLIENTS, axis=1), labels, labels[VICTIM] > 0)


def own_rare_labels(seed: int) -> Data:
    """Return normal features, and heads that have a rare class each, independently."""
    return one_rare_label(seed, shared=False)


def digits(seed: int) -> Data:
    """Return handwritten digits, two lines of pixels for each client, and the same labels."""
    found = load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    features = (found.data[order] / 16).astype(np.float32)
    target = found.target[order].astype(np.int64)
    blocks = np.split(features, NUM_CLIENTS, axis=1)
    return Data(blocks, dict.fromkeys(range(1, NUM_CLIENTS), target), target == DIGIT)


DATA: dict[str, Callable[[int], Data]] = {
    "one rare label at all heads": one_rare_label,
    "a rare label of its own at each head": own_rare_labels,
    f"ten digits, is it an {DIGIT}": digits,
}


class SpyModels(StepModels):
    """Records each head's gradient of a representation, and the sum of all."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sum_bd = torch.empty(0)
        self.each_bd: list[torch.Tensor] = []

    def represent(
        self, inputs: torch.Tensor, step: int, patterns: Sequence[int] = ()
    ) -> torch.Tensor:
        """Represent a batch, and record the sum of the gradients that come back for it."""
        own_bd = super().represent(inputs, step, patterns)
        self.each_bd = []
        _record(own_bd, self._keep_sum)
        return own_bd

    def record_next(self, own_bd: torch.Tensor) -> None:
        """Record the gradient that comes back from one more head."""
        place = len(self.each_bd)
        self.each_bd.append(torch.empty(0))
        _record(own_bd, lambda gradient_bd: self._keep(place, gradient_bd))

    def _keep(self, place: int, gradient_bd: torch.Tensor) -> None:
        self.each_bd[place] = gradient_bd.clone()

    def _keep_sum(self, gradient_bd: torch.Tensor) -> None:
        self.sum_bd = gradient_bd.clone()


class Spy(Learner):
    """An attacking client."""

    in_steps = SpyModels
    in_place: SpyModels

    @property
    def sum_bd(self) -> torch.Tensor:
        """The gradients of all heads, added up."""
        return self.in_place.sum_bd

    @property
    def each_bd(self) -> list[torch.Tensor]:
        """The gradient of each head."""
        return self.in_place.each_bd

    def released(self, own_bd: torch.Tensor, phase: Phase, step: int) -> torch.Tensor:
        """Release a copy for one head, and record the gradient that comes back from it."""
        if own_bd.requires_grad:
            self.in_place.record_next(own_bd)
        return super().released(own_bd, phase, step)


def _record(tensor: torch.Tensor, keep: Callable[[torch.Tensor], None]) -> None:
    tensor.register_hook(keep)  # type: ignore[no-untyped-call]


def measure(data: Data, protection: Protection, seed: int, epochs: int) -> dict[str, float]:
    """Train once; return how well the best attack of each kind guesses, in its best epoch."""
    settings = TrainingSettings(
        representation_dim=WIDTH,
        batch_size=128,
        epochs=epochs,
        seed=seed,
        masked_gradients=protection.masked,
    )
    alignments = align_rows([_digests(data.num_train)] * NUM_CLIENTS)
    learners = {k: _learner(k, data, protection, settings) for k in range(NUM_CLIENTS)}
    members = {k: _member(learners[k], alignments[k], data, k) for k in range(NUM_CLIENTS)}
    oracle = Oracle(members, settings)
    spy = learners[SPY]
    assert isinstance(spy, Spy)
    schedule = Schedule(
        alignments[SPY].groups, seed=seed, batch_size=128, batching=settings.batching
    )
    is_known = np.random.default_rng(seed + 1).random(data.num_train) < KNOWN_SHARE
    by_norm, by_direction = [], []
    for epoch in range(epochs):
        gradients_nd = np.zeros((data.num_train, WIDTH))
        for step in range(schedule.steps_per_epoch):
            number = epoch * schedule.steps_per_epoch + step
            plan = plan_step(
                schedule.step(number),
                alignments[SPY],
                client=SPY,
                participants=EVERYONE,
                heads=HEADS,
            )
            assert plan is not None
            oracle.step(number, EVERYONE)
            received_bd = spy.sum_bd if protection.masked else spy.each_bd[VICTIM - 1]
            gradients_nd[plan.rows] = received_bd.double().numpy()
        by_norm.append(_norm_attack(gradients_nd, data.is_positive[: data.num_train]))
        by_direction.append(
            _direction_attack(gradients_nd, data.is_positive[: data.num_train], is_known)
        )
    return {
        "norm_auc": max(by_norm),
        "direction_auc": max(by_direction),
        "prediction_auc": _prediction(learners, data),
    }


def _norm_attack(gradients_nd: Floats, is_positive_n: npt.NDArray[np.bool_]) -> float:
    return float(roc_auc_score(is_positive_n, np.linalg.norm(gradients_nd, axis=1)))


def _direction_attack(
    gradients_nd: Floats, is_positive_n: npt.NDArray[np.bool_], is_known_n: npt.NDArray[np.bool_]
) -> float:
    """Compare with the mean directions of those whose label the attacker knows."""
    unit_nd = gradients_nd / np.maximum(np.linalg.norm(gradients_nd, axis=1, keepdims=True), 1e-30)
    positive = unit_nd[is_known_n & is_positive_n].mean(axis=0)
    negative = unit_nd[is_known_n & ~is_positive_n].mean(axis=0)
    score_n = unit_nd @ (positive - negative)
    return float(roc_auc_score(is_positive_n[~is_known_n], score_n[~is_known_n]))


def _prediction(learners: dict[int, Learner], data: Data) -> float:
    """Return how well the victim's own predictions of other samples, from all blocks, are."""
    total_nd = torch.zeros(len(data.is_positive) - data.num_train, WIDTH)
    for client, learner in learners.items():
        own_nd = learner.embed(torch.from_numpy(data.blocks[client][data.num_train :]))
        sent_nd = own_nd if client == VICTIM else learner.released(own_nd, Phase.EVALUATION, 0)
        total_nd += sent_nd
    victim = learners[VICTIM]
    with victim.evaluating():
        outputs = victim.models["fusion"](total_nd / NUM_CLIENTS)
    score = outputs[:, 0] if victim.task == "binary" else outputs.softmax(dim=1)[:, DIGIT]
    return float(roc_auc_score(data.is_positive[data.num_train :], score.numpy()))


def _learner(
    client: int, data: Data, protection: Protection, settings: TrainingSettings
) -> Learner:
    target = data.targets.get(client)
    is_binary = target is not None and target.dtype == np.float32
    with initial_randomness(settings.seed, client):
        representation = build_representation(
            "mlp",
            input_shape=data.blocks[client].shape[1:],
            representation_dim=WIDTH,
            hidden=HIDDEN,
            options={},
        )
        head = None
        if target is not None:
            num_outputs = 1 if is_binary else int(target.max()) + 1
            head = build_fusion(
                "linear", representation_dim=WIDTH, num_outputs=num_outputs, options={}
            )
    release = None
    if protection.clip is not None:
        release = Release(protection.clip, protection.noise, bytes([client]) * 32)
    return (Spy if client == SPY else Learner)(
        FederationContext(client, NUM_CLIENTS, HEADS, settings),
        representation,
        head,
        task="binary" if is_binary else "multiclass",
        optimizer=OptimizerSettings(name="adam", lr=0.01),
        release=release,
        method=method_named(settings.method),
    )


def _member(learner: Learner, alignment: ClientAlignment, data: Data, client: int) -> Member:
    num = data.num_train
    inputs = torch.from_numpy(data.blocks[client][:num])
    if client == SPY:
        return Member(learner, alignment, inputs)
    targets = torch.from_numpy(data.targets[client][:num])
    return Member(learner, alignment, inputs, targets, torch.ones(num))


def _digests(num: int) -> npt.NDArray[np.uint8]:
    """Number the samples in place of blinded ids."""
    digests = np.zeros((num, DIGEST_BYTES), dtype=np.uint8)
    digests[:, -8:] = np.arange(num, dtype=">i8").view(np.uint8).reshape(-1, 8)
    return digests


def main() -> None:
    """Measure all and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    started = time.monotonic()
    results: dict[str, Any] = {}
    for name, make in DATA.items():
        for what, protection in PROTECTIONS.items():
            runs = [
                measure(make(seed), protection, seed, options.epochs)
                for seed in range(options.seeds)
            ]
            medians = {key: round(median(run[key] for run in runs), 3) for key in runs[0]}
            results.setdefault(name, {})[what] = medians
    print(json.dumps({"seeds": options.seeds, "epochs": options.epochs, "results": results}))
    parser.exit(0, f"{time.monotonic() - started:.0f} s\n")


if __name__ == "__main__":
    main()
