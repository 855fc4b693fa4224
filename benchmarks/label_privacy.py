"""Measures what randomised labels give and cost: what an attacker guesses, how the model predicts.

Four clients, of which one has labels and randomises them. An attacking client without labels
records the gradients of its representation, knows the true labels of 5 % of the training samples,
and guesses who is positive:

- "direction_auc": by the direction of a gradient, as in label_leakage.py, in its best epoch;
- "noisy_label_auc": the same, but it has to guess which label was told, after the noise;
- "best_auc": it is given every noisy label outright, its own features, and how labels are
  randomised. From these it computes how likely each sample is positive. All that is sent is
  computed from noisy labels and features, so gradients could tell it nothing more of a label;
- "features_auc": the same without the noisy label of the person that is guessed;
- "canary_auc": a fifth of the training samples get labels at random, of which features tell
  nothing, and the direction attack guesses these. No attack can be better than "bound".

"prediction_auc" and "accuracy" are of the victim's own predictions of other samples, from all
blocks, by loss: "forward" is what a client uses, with a head that starts at how frequent each true
class seems to be. "unstarted" is the same loss with a head that starts at random, and "none", from
there too, takes noisy labels for true ones. The others start where a client does. With true labels,
"started" is a head that starts at how frequent each class is. All runs in one process, by the
oracle. The result is one JSON object, with medians over the seeds; with --no-attacks, it has
predictions alone, with means and their standard errors.

    python benchmarks/label_privacy.py
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median, stdev
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from label_leakage import (
    DIGIT,
    EVERYONE,
    HIDDEN,
    KNOWN_SHARE,
    NUM_CLIENTS,
    SPY,
    VICTIM,
    WIDTH,
    Spy,
    _digests,
    _direction_attack,
    digits,
    one_rare_label,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from torch import nn
from torch.nn import functional

from laser_vfl.core.alignment import align_rows
from laser_vfl.core.privacy.label_noise import RandomisedResponse, randomised
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.schedule.schedule import Schedule
from laser_vfl.core.schedule.step_plan import plan_step
from laser_vfl.core.training.fusion import sample_losses
from laser_vfl.core.training.head_start import started
from laser_vfl.core.training.layer_randomness import initial_randomness
from laser_vfl.core.training.learner import FederationContext, Learner, OptimizerSettings
from laser_vfl.core.training.step_models import StepModels
from laser_vfl.core.training.task_sampling import Tasks
from laser_vfl.data.sets import data_root
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.models import build_fusion, build_representation

USED = "forward"
HEADS = 1 << VICTIM
CANARY_SHARE = 0.2
NUM_FOLDS = 3
STANDING = 4
NO_NOISE = 100.0
AT_RANDOM = ("none", "unstarted")
"""With these losses, heads start at random."""

CONFIDENT = 0.8
PREDICTIONS = ("prediction_auc", "accuracy")

Floats = npt.NDArray[np.float64]
Losses = Callable[[RandomisedResponse, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Samples:
    """Blocks of features, and classes; the first samples are trained on."""

    blocks: list[npt.NDArray[np.float32]]
    classes: npt.NDArray[np.int64]
    num_classes: int
    positive: int
    num_train: int


def rare_label(seed: int) -> Samples:
    """Return normal features, and a label that one in ten has."""
    found = one_rare_label(seed)
    return Samples(found.blocks, found.is_positive.astype(np.int64), 2, 1, found.num_train)


def ten_digits(seed: int) -> Samples:
    """Return handwritten digits, two lines of pixels for each client."""
    found = digits(seed)
    return Samples(found.blocks, found.targets[VICTIM], 10, DIGIT, found.num_train)


def credit(seed: int) -> Samples:
    """Return a third of the clients of a bank, and whether they default."""
    file = np.load(_path("credit_default.npz"))
    order = np.random.default_rng(seed).permutation(len(file["y"]))[:10_000]
    features = file["X"][order].astype(np.float64)
    num_train = len(order) * 4 // 5
    return _standardised(features, file["y"][order].astype(np.int64), 2, 1, num_train)


def hapt(seed: int) -> Samples:
    """Return features of movements, re-derived from the HAPT raw signals; is it standing?"""
    file = np.load(_path("hapt_derived561.npz"))
    features = np.concatenate([file["X_train"], file["X_test"]]).astype(np.float64)
    classes = np.concatenate([file["y_train"], file["y_test"]]).astype(np.int64) - 1
    order = np.random.default_rng(seed).permutation(561)
    return _standardised(features[:, order], classes, 12, STANDING, len(file["y_train"]))


def _standardised(
    features: Floats,
    classes: npt.NDArray[np.int64],
    num_classes: int,
    positive: int,
    num_train: int,
) -> Samples:
    mean, deviation = features[:num_train].mean(axis=0), features[:num_train].std(axis=0)
    scaled = ((features - mean) / np.maximum(deviation, 1e-9)).astype(np.float32)
    blocks = np.array_split(scaled, NUM_CLIENTS, axis=1)
    return Samples(blocks, classes, num_classes, positive, num_train)


def _path(name: str) -> str:
    root = data_root(None)
    if root is None or not (root / name).exists():
        raise FileNotFoundError(f"{name} is not here: set LASER_VFL_DATA")
    return str(root / name)


DATA: dict[str, Callable[[int], Samples]] = {
    "rare label": rare_label,
    "ten digits": ten_digits,
    "credit": credit,
    "hapt": hapt,
}


def _backward(
    noise: RandomisedResponse, outputs_no: torch.Tensor, targets_n: torch.Tensor
) -> torch.Tensor:
    """Weigh the losses of all classes so that their mean over the noise is that of the true one."""
    losses_nc = torch.stack(
        [_plain(outputs_no, torch.full_like(targets_n, c)) for c in range(noise.num_levels)], dim=1
    )
    told_n = losses_nc.gather(1, targets_n.long()[:, None])[:, 0]
    return (told_n - noise.lie * losses_nc.sum(dim=1)) / (noise.keep - noise.lie)


def _thresholded(
    noise: RandomisedResponse, outputs_no: torch.Tensor, targets_n: torch.Tensor
) -> torch.Tensor:
    """Learn the label that is most likely by now, where it is likely; else in proportion (EM)."""
    logits_nc = outputs_no
    if outputs_no.shape[1] == 1:
        logits_nc = torch.cat([torch.zeros_like(outputs_no), outputs_no], dim=1)
    with torch.no_grad():
        told_nc = functional.one_hot(targets_n.long(), noise.num_levels)
        share_nc = logits_nc.softmax(dim=1) * torch.where(told_nc > 0, noise.keep, noise.lie)
        share_nc /= share_nc.sum(dim=1, keepdim=True)
        surest_nc = functional.one_hot(share_nc.argmax(dim=1), noise.num_levels).float()
        is_sure_n1 = share_nc.max(dim=1, keepdim=True).values > CONFIDENT
        share_nc = torch.where(is_sure_n1, surest_nc, share_nc)
    return -(share_nc * logits_nc.log_softmax(dim=1)).sum(dim=1)


def _plain(outputs_no: torch.Tensor, targets_n: torch.Tensor) -> torch.Tensor:
    task = "binary" if outputs_no.shape[1] == 1 else "multiclass"
    return sample_losses(task, outputs_no, targets_n)


ALTERNATIVES: dict[str, Losses] = {
    "none": lambda _, outputs_no, targets_n: _plain(outputs_no, targets_n),
    "backward": _backward,
    "thresholded": _thresholded,
}


class VictimModels(StepModels):
    """The models of the client with labels, with one of the losses."""

    losses: Losses | None = None
    noise: RandomisedResponse

    def loss(
        self,
        step: int,
        tasks: Tasks,
        representations_bpd: torch.Tensor,
        targets_b: torch.Tensor,
        label_weights_b: torch.Tensor,
    ) -> torch.Tensor:
        """Return the head's part of the step's loss."""
        if self.losses is None:
            return super().loss(step, tasks, representations_bpd, targets_b, label_weights_b)
        outputs_no = self.method.prediction.outputs(
            self.models["fusion"], tasks, representations_bpd
        )
        losses_n = self.losses(self.noise, outputs_no, targets_b[tasks.sample_n])
        return (losses_n * tasks.weight_n * label_weights_b[tasks.sample_n]).sum()


class Victim(Learner):
    """The client with labels."""

    in_steps = VictimModels
    in_place: VictimModels


class Run:
    """One federation in training, and what its attacker sees."""

    def __init__(
        self, samples: Samples, epsilon: float | None, loss: str, seed: int, epochs: int
    ) -> None:
        self.samples = samples
        num, true_n = samples.num_train, samples.classes[: samples.num_train]
        self.noise = None if epsilon is None else RandomisedResponse(epsilon, samples.num_classes)
        self.told_n = true_n
        if self.noise is not None:
            people = [str(n) for n in range(num)]
            self.told_n = randomised(self.noise, b"%032d" % seed, b"benchmark", people, true_n)
        self.settings = TrainingSettings(
            representation_dim=WIDTH, batch_size=128, epochs=epochs, seed=seed
        )
        alignments = align_rows([_digests(num)] * NUM_CLIENTS)
        self.alignment = alignments[SPY]
        self.learners = {k: self._learner(k, loss) for k in range(NUM_CLIENTS)}
        members = {k: self._member(k, alignments[k]) for k in range(NUM_CLIENTS)}
        self.oracle = Oracle(members, self.settings)

    def gradients(self) -> list[Floats]:
        """Train, and return the gradient of each sample that the attacker gets in each epoch."""
        spy, settings = self.learners[SPY], self.settings
        assert isinstance(spy, Spy)
        schedule = Schedule(
            self.alignment.groups,
            seed=settings.seed,
            batch_size=settings.batch_size,
            batching=settings.batching,
        )
        by_epoch = []
        for epoch in range(settings.epochs):
            gradients_nd = np.zeros((self.samples.num_train, WIDTH))
            for step in range(schedule.steps_per_epoch):
                number = epoch * schedule.steps_per_epoch + step
                plan = plan_step(
                    schedule.step(number),
                    self.alignment,
                    client=SPY,
                    participants=EVERYONE,
                    heads=HEADS,
                )
                assert plan is not None
                self.oracle.step(number, EVERYONE)
                gradients_nd[plan.rows] = spy.each_bd[0].double().numpy()
            by_epoch.append(gradients_nd)
        return by_epoch

    def predictions(self) -> dict[str, float]:
        """Return how good the victim's predictions of other samples are, from all blocks."""
        samples, victim = self.samples, self.learners[VICTIM]
        parts = [
            learner.embed(torch.from_numpy(samples.blocks[k][samples.num_train :]))
            for k, learner in self.learners.items()
        ]
        with victim.evaluating():
            outputs_no = victim.models["fusion"](torch.stack(parts).mean(dim=0))
        if outputs_no.shape[1] == 1:
            outputs_no = torch.cat([torch.zeros_like(outputs_no), outputs_no], dim=1)
        shares_nc = outputs_no.double().softmax(dim=1).numpy()
        true_n = samples.classes[samples.num_train :]
        return {
            "prediction_auc": _auc(true_n == samples.positive, shares_nc[:, samples.positive]),
            "accuracy": float((shares_nc.argmax(axis=1) == true_n).mean()),
        }

    def _learner(self, client: int, loss: str) -> Learner:
        samples, settings = self.samples, self.settings
        is_binary = samples.num_classes == 2
        with initial_randomness(settings.seed, client):
            representation = build_representation(
                "mlp",
                input_shape=samples.blocks[client].shape[1:],
                representation_dim=WIDTH,
                hidden=HIDDEN,
                options={},
            )
            head = self._head(loss) if client == VICTIM else None
        kind = {SPY: Spy, VICTIM: Victim}.get(client, Learner)
        learner: Learner = kind(
            FederationContext(client, NUM_CLIENTS, HEADS, settings),
            representation,
            head,
            task="binary" if is_binary else "multiclass",
            optimizer=OptimizerSettings(name="adam", lr=0.01),
            label_noise=self.noise,
            method=method_named(settings.method),
        )
        if isinstance(learner, Victim) and self.noise is not None:
            learner.in_place.losses, learner.in_place.noise = ALTERNATIVES.get(loss), self.noise
        return learner

    def _head(self, loss: str) -> nn.Module:
        samples = self.samples
        num_outputs = 1 if samples.num_classes == 2 else samples.num_classes
        noise = None if loss in AT_RANDOM else self.noise
        if loss == "started":
            noise = RandomisedResponse(NO_NOISE, samples.num_classes)
        return started(
            lambda: build_fusion(
                "linear", representation_dim=WIDTH, num_outputs=num_outputs, options={}
            ),
            noise,
            torch.from_numpy(self.told_n),
            torch.ones(samples.num_train),
        )()

    def _member(self, client: int, alignment: Any) -> Member:
        num = self.samples.num_train
        inputs = torch.from_numpy(self.samples.blocks[client][:num])
        if client != VICTIM:
            return Member(self.learners[client], alignment, inputs)
        dtype = np.float32 if self.samples.num_classes == 2 else np.int64
        targets = torch.from_numpy(self.told_n.astype(dtype))
        return Member(self.learners[client], alignment, inputs, targets, torch.ones(num))


def measure(samples: Samples, epsilon: float | None, seed: int, epochs: int) -> dict[str, float]:
    """Train with the loss that a client uses; return how well attacks guess, and predictions."""
    run = Run(samples, epsilon, USED, seed, epochs)
    gradients = run.gradients()
    is_positive_n = samples.classes[: samples.num_train] == samples.positive
    is_told_n = run.told_n == samples.positive
    is_known_n = np.random.default_rng(seed + 1).random(samples.num_train) < KNOWN_SHARE
    before_n, after_n = posteriors(run)
    canaries, canary_auc = _canaries(samples, epsilon, seed, epochs)
    return {
        "bound": 1.0 if run.noise is None else (1 + run.noise.keep - run.noise.lie) / 2,
        "direction_auc": _best(gradients, is_positive_n, is_known_n),
        "noisy_label_auc": _best(gradients, is_told_n, is_known_n),
        "features_auc": _auc(is_positive_n, before_n),
        "best_auc": _auc(is_positive_n, after_n),
        "canary_auc": canary_auc,
        "num_canaries": canaries,
        **run.predictions(),
    }


def posteriors(run: Run) -> tuple[Floats, Floats]:
    """Return how likely each sample is positive to the attacker, without and with its own label.

    From its own features it learns from the labels of others (in folds) which label is told, and
    takes the noise off that.
    """
    samples, noise = run.samples, run.noise
    own_nf = samples.blocks[SPY][: samples.num_train]
    model = LogisticRegression(C=0.1, max_iter=50)
    told_nc = np.zeros((samples.num_train, samples.num_classes))
    told_nc[:, np.unique(run.told_n)] = cross_val_predict(
        model, own_nf, run.told_n, cv=NUM_FOLDS, method="predict_proba"
    )
    if noise is None:
        return told_nc[:, samples.positive], (run.told_n == samples.positive).astype(np.float64)
    share_nc = np.maximum((told_nc - noise.lie) / (noise.keep - noise.lie), 1e-3)
    share_nc /= share_nc.sum(axis=1, keepdims=True)
    is_told_nc = run.told_n[:, None] == np.arange(samples.num_classes)
    after_nc = share_nc * np.where(is_told_nc, noise.keep, noise.lie)
    after_nc /= after_nc.sum(axis=1, keepdims=True)
    return share_nc[:, samples.positive], after_nc[:, samples.positive]


def _canaries(samples: Samples, epsilon: float | None, seed: int, epochs: int) -> tuple[int, float]:
    """Train with labels at random for some, and return how many they are and what is guessed."""
    random = np.random.default_rng(seed + 2)
    is_canary_n = random.random(samples.num_train) < CANARY_SHARE
    classes = samples.classes.copy()
    num = int(is_canary_n.sum())
    drawn_n = random.integers(0, samples.num_classes, num)
    classes[: samples.num_train][is_canary_n] = drawn_n
    run = Run(replace(samples, classes=classes), epsilon, USED, seed, epochs)
    is_positive_n = classes[: samples.num_train] == samples.positive
    is_known_n = ~is_canary_n & (random.random(samples.num_train) < KNOWN_SHARE)
    scores = [
        _auc(is_positive_n[is_canary_n], _directions(g, is_positive_n, is_known_n)[is_canary_n])
        for g in run.gradients()
    ]
    # The last epoch, and not the best one, which would be the luckiest.
    return num, scores[-1]


def _directions(
    gradients_nd: Floats, is_positive_n: npt.NDArray[np.bool_], is_known_n: npt.NDArray[np.bool_]
) -> Floats:
    unit_nd = gradients_nd / np.maximum(np.linalg.norm(gradients_nd, axis=1, keepdims=True), 1e-30)
    positive = unit_nd[is_known_n & is_positive_n].mean(axis=0)
    negative = unit_nd[is_known_n & ~is_positive_n].mean(axis=0)
    return unit_nd @ (positive - negative)


def _best(
    gradients: Sequence[Floats],
    is_positive_n: npt.NDArray[np.bool_],
    is_known_n: npt.NDArray[np.bool_],
) -> float:
    return max(_direction_attack(g, is_positive_n, is_known_n) for g in gradients)


def _auc(is_positive_n: npt.NDArray[np.bool_], scores_n: Floats) -> float:
    return float(roc_auc_score(is_positive_n, scores_n))


def predict_only(
    samples: Samples, epsilon: float | None, loss: str, seed: int, epochs: int
) -> dict[str, float]:
    """Train with one of the losses; return how good predictions are."""
    run = Run(samples, epsilon, loss, seed, epochs)
    run.oracle.run()
    return run.predictions()


def by_loss(
    sets: Sequence[Samples], epsilon: float | None, losses: Sequence[str], epochs: int
) -> dict[str, list[dict[str, float]]]:
    """Return how good predictions are with each of the losses, for each seed."""
    return {
        loss: [predict_only(s, epsilon, loss, k, epochs) for k, s in enumerate(sets)]
        for loss in losses
    }


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(median(run[key] for run in runs), 3) for key in runs[0]}


def _means(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    found = {}
    for key in runs[0]:
        values = [run[key] for run in runs]
        found[key] = round(mean(values), 4)
        if len(values) > 1:
            found[f"{key}_error"] = round(stdev(values) / len(values) ** 0.5, 4)
    return found


def main() -> None:
    """Measure all and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--epsilons", nargs="*", type=float, default=[1.0, 2.0, 3.0, 5.0])
    choices = [*ALTERNATIVES, "unstarted"]
    parser.add_argument("--losses", nargs="*", choices=choices, default=choices)
    parser.add_argument("--no-attacks", action="store_true", help="predict only; print means")
    options = parser.parse_args()
    torch.set_num_threads(1)
    started_at = time.monotonic()
    attacks: dict[str, Any] = {}
    losses: dict[str, Any] = {}
    for name in options.data:
        sets = [DATA[name](seed) for seed in range(options.seeds)]
        attacks[name], losses[name] = {}, {}
        for epsilon in (None, *options.epsilons):
            told = "none" if epsilon is None else f"{epsilon:g}"
            others = ["started"] if epsilon is None else options.losses
            tried = by_loss(sets, epsilon, others, options.epochs)
            if options.no_attacks:
                tried |= by_loss(sets, epsilon, [USED], options.epochs)
            else:
                runs = [measure(s, epsilon, k, options.epochs) for k, s in enumerate(sets)]
                attacks[name][told] = _medians(runs)
                print(name, told, attacks[name][told], file=sys.stderr)
                tried[USED] = [{key: run[key] for key in PREDICTIONS} for run in runs]
            summed = _means if options.no_attacks else _medians
            losses[name][told] = {loss: summed(runs) for loss, runs in tried.items()}
            print(name, told, losses[name][told], file=sys.stderr, flush=True)
    settings = {"seeds": options.seeds, "epochs": options.epochs}
    print(json.dumps({**settings, "attacks": attacks, "losses": losses}))
    parser.exit(0, f"{time.monotonic() - started_at:.0f} s\n")


if __name__ == "__main__":
    main()
