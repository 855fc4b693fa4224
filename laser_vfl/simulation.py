"""A whole federation in one process, for research: the same core as the daemons, no network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from torch import nn

from laser_vfl.core.alignment import DIGEST_BYTES, align_rows
from laser_vfl.core.errors import DataError, quoted
from laser_vfl.core.evaluation.metrics import r2
from laser_vfl.core.evaluation.subset_scores import decide
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import ModelParts
from laser_vfl.core.privacy.keystream import KEY_BYTES, subkey
from laser_vfl.core.reference import Member, Oracle
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.training.head_start import started
from laser_vfl.core.training.layer_randomness import initial_randomness
from laser_vfl.core.training.learner import Learner, OptimizerSettings
from laser_vfl.data import Encoding, KnownLabels, LabelEncoding, PrivateLabels, Table, TableSpec
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.models import build_fusion, build_representation

Array = npt.NDArray[Any]
Block = Array | pl.DataFrame
Blocks = Mapping[str, npt.ArrayLike | pl.DataFrame]
Labels = npt.ArrayLike | Mapping[str, npt.ArrayLike]

ROWS_AT_ONCE = 4096


def simulate(blocks: Blocks, labels: Labels, **options: Any) -> "Simulation":
    """Train a federation on these blocks and return it; `options` are those of `Simulation`."""
    return Simulation(**options).fit(blocks, labels)


class Simulation:
    """A method with the manners of scikit-learn: `fit`, `predict`, `score`.

    `blocks` has an array (samples, ...) or a polars frame for each client, in roster order, all of
    the same samples; a row that is NaN or null throughout is a block that the client does not have.
    `labels` is one array for all clients, or a mapping with an array for each client that has
    labels. `training` takes the keys of `training` in a coordinator's configuration.

    With `label_epsilon`, each client randomises its labels as `privacy.labels` does, before it
    trains: among the classes, or between the bounds, that it has. Secrets come from the seed.
    """

    trainer: type[Oracle] = Oracle

    def __init__(
        self,
        *,
        representation: str = "mlp",
        hidden: Sequence[int] = (64, 64),
        fusion: str = "linear",
        representation_options: Mapping[str, object] | None = None,
        fusion_options: Mapping[str, object] | None = None,
        task: str = "auto",
        class_weights: str = "none",
        scaling: str = "standard",
        optimizer: OptimizerSettings | None = None,
        label_epsilon: float | None = None,
        **training: Any,
    ) -> None:
        self._models = (representation, tuple(hidden), fusion)
        self._options = (dict(representation_options or {}), dict(fusion_options or {}))
        self._spec = TableSpec(
            "id", "label", scaling=scaling, task=task, class_weights=class_weights
        )
        self._optimizer = optimizer
        self._label_epsilon = label_epsilon
        defaults = {"representation_dim": 32, "batch_size": 128, "epochs": 20}
        self.settings = TrainingSettings.model_validate(defaults | training)
        self._method = method_named(self.settings.method)

    def fit(
        self, blocks: Blocks, labels: Labels, renewed: Callable[[int], Blocks] | None = None
    ) -> Self:
        """Train from scratch, in the steps that a real federation would take.

        `renewed` gives the blocks of an epoch after the first, where they change in between.
        """
        arrays = _as_arrays(blocks)
        by_client = _labels_by_client(labels, tuple(arrays), _num_samples(arrays))
        self.roster = tuple(arrays)
        self._samples_of_none = {name: _missing(array, 0) for name, array in arrays.items()}
        labelled = mask_of(k for k, name in enumerate(self.roster) if name in by_client)
        self._heads = self._method.blocks.heads(labelled)
        held = {name: np.flatnonzero(_observed(array)) for name, array in arrays.items()}
        alignments = align_rows([_digests(rows) for rows in held.values()])
        self._encodings: dict[str, Encoding] = {}
        self._labels: dict[str, LabelEncoding] = {}
        self._classes: dict[str, Array] = {}
        members = {}
        for k, (name, array) in enumerate(arrays.items()):
            table = self._table(name, array[held[name]], by_client.get(name), held[name])
            members[k] = self._member(k, name, table, alignments[k])
        self._learners = {name: members[k].learner for k, name in enumerate(self.roster)}
        self.oracle = self.trainer(members, self.settings)
        if renewed is None:
            self.oracle.run()
            return self
        everyone = mask_of(members)
        for step in range(self.oracle.num_steps):
            epoch, index = divmod(step, self.oracle.timeline.steps_per_epoch)
            if epoch and not index:
                self._renew(members, _as_arrays(renewed(epoch)), held)
            self.oracle.step(step, everyone)
        return self

    def _renew(
        self, members: Mapping[int, Member], arrays: dict[str, Block], held: dict[str, Array]
    ) -> None:
        for k, name in enumerate(self.roster):
            table = self._table(name, arrays[name][held[name]], None, held[name])
            members[k].inputs.copy_(torch.from_numpy(self._encodings[name].apply(table)))

    def predict(self, blocks: Blocks, client: str | None = None) -> Array:
        """Predict each sample from all the blocks it has, at a client that holds it.

        A client that is left out of `blocks` holds none of the samples.

        Without `client`, the first of the roster that holds the sample and has labels answers. A
        sample that nobody can answer for is None.
        """
        predictions = self.decisions(blocks)
        chosen = predictions if client is None else {client: predictions[client]}
        answer = np.full(len(next(iter(predictions.values()))[0]), None, dtype=object)
        for name, (values, rows) in reversed(chosen.items()):
            answer[rows] = self._decoded(name, values[rows])
        known = [value for value in answer if value is not None]
        return np.array(known) if len(known) == len(answer) else answer

    def score(self, blocks: Blocks, labels: Labels) -> float:
        """Return accuracy, over a sample's clients and then over samples; R² for regression."""
        arrays = _as_arrays(blocks)
        by_client = _labels_by_client(labels, self.roster, _num_samples(arrays))
        predictions = {k: v for k, v in self.decisions(blocks).items() if k in by_client}
        total, count = np.zeros(_num_samples(arrays)), np.zeros(_num_samples(arrays))
        explained = []
        for name, (values, rows) in predictions.items():
            table = self._table(name, np.zeros((len(values), 1)), by_client[name], slice(None))
            targets, labelled = self._labels[name].apply(table)
            rows = rows & labelled
            if self._labels[name].task == "regression":
                explained.append(r2(values[rows].astype(float), targets[rows].astype(float)))
                continue
            decided = values if self._labels[name].task == "multiclass" else values > 0
            total[rows] += decided[rows] == targets[rows]
            count[rows] += 1
        if explained:
            known = [value for value in explained if value is not None]
            return float(np.mean(known)) if known else float("nan")
        return float((total[count > 0] / count[count > 0]).mean())

    def _member(self, client: int, name: str, table: Table, alignment: Any) -> Member:
        representation, hidden, fusion = self._models
        width, method = self.settings.representation_dim, self._method
        encoding = self._encodings[name] = Encoding.fit(table)
        labels = self._label_encoding(table) if table.labels is not None else None
        private = self._private_labels(name)
        noise = private.noise(labels) if private and labels else None
        targets = weights = None
        if labels is not None:
            told, labelled = private.told(table, labels) if private else labels.apply(table)
            targets = torch.from_numpy(told)
            weights = torch.from_numpy(labels.weights(told, labelled))
        num_outputs = labels.num_outputs if labels else 0

        def built_fusion() -> nn.Module:
            return build_fusion(
                fusion, representation_dim=width, num_outputs=num_outputs, options=self._options[1]
            )

        parts = ModelParts(
            lambda shape, form: build_representation(
                representation,
                input_shape=shape,
                representation_dim=width,
                hidden=hidden,
                options=self._options[0],
                form=form,
            ),
            built_fusion if ":" in fusion else started(built_fusion, noise, targets, weights),
            encoding.input_shape,
            num_outputs,
            labels.classes if labels else (),
            encoding.form,
        )
        context = FederationContext(
            client, len(self.roster), self._heads, self.settings, alignment.groups
        )
        has_head = has(self._heads, client)
        with initial_randomness(self.settings.seed, client):
            model = method.models.representation(parts, context)
            head = method.models.fusion(parts, context) if has_head else None
        task = labels.task if labels is not None else "multiclass"
        learner = Learner(
            context,
            model,
            head,
            task=task,
            optimizer=self._optimizer,
            label_noise=noise,
            method=method,
            scratch=method.preparation.state(context, alignment, encoding.form),
        )
        inputs = torch.from_numpy(encoding.apply(table))
        if labels is None or not has_head:
            return Member(learner, alignment, inputs)
        self._labels[name] = labels
        self._classes[name] = _classes(labels, table)
        return Member(learner, alignment, inputs, targets, weights)

    def _label_encoding(self, table: Table) -> LabelEncoding:
        labels = LabelEncoding.fit(table, self._spec)
        if self._label_epsilon is None or labels.task != "regression":
            return labels
        assert table.labels is not None
        numbers = table.labels.cast(pl.Float64).drop_nans().drop_nulls().to_numpy()
        known = KnownLabels(bounds=(float(numbers.min()), float(numbers.max())))
        return LabelEncoding.fit(table, replace(self._spec, known=known))

    def _private_labels(self, name: str) -> PrivateLabels | None:
        if self._label_epsilon is None:
            return None
        seed = self.settings.seed.to_bytes(KEY_BYTES, "little", signed=True)
        return PrivateLabels(self._label_epsilon, subkey(seed, b"simulation", name.encode()))

    def decisions(self, blocks: Blocks) -> dict[str, tuple[Array, Array]]:
        """Return, for each head, a decision for each sample and which samples it holds.

        Decisions are class numbers (multiclass), log-odds (binary) or standardised values.
        """
        arrays = self._completed(_as_arrays(blocks))
        held = {name: _observed(array) for name, array in arrays.items()}
        shown = {name: self._embedded(name, array, held[name]) for name, array in arrays.items()}
        return {name: (self._decisions(name, shown, held), held[name]) for name in self._labels}

    def _completed(self, given: Mapping[str, Block]) -> dict[str, Block]:
        """Return a block for each client; one that was left out is missing for all samples."""
        if unknown := [name for name in given if name not in self.roster]:
            raise DataError(
                f"there is no client {quoted(unknown[0])} with a block",
                hint=f"blocks are those of {', '.join(self.roster)}",
            )
        num = _num_samples(given)
        absent = {name: _missing(like, num) for name, like in self._samples_of_none.items()}
        return {name: given.get(name, absent[name]) for name in self.roster}

    def classes(self, blocks: Blocks) -> dict[str, tuple[Array, Array]]:
        """Return, for each head, classes as they are in its labels, and which samples it holds."""
        decisions = self.decisions(blocks)
        return {name: (self._decoded(name, v), held) for name, (v, held) in decisions.items()}

    def _embedded(self, name: str, array: Block, held: Array) -> Array:
        """Return what a client contributes to predictions of the samples that it holds."""
        rows = np.flatnonzero(held)
        table = self._table(name, array[rows], None, rows)
        inputs = torch.from_numpy(self._encodings[name].apply(table))
        pieces = torch.split(inputs, ROWS_AT_ONCE)
        return torch.cat([self._learners[name].embed(piece) for piece in pieces]).numpy()

    def _decisions(self, name: str, shown: dict[str, Array], held: dict[str, Array]) -> Array:
        """Return what the head of a client decides, 0 for samples that it does not hold."""
        learner, mine = self._learners[name], held[name]
        context, method = learner.context, learner.method
        answers = {}
        for k, other in enumerate(self.roster):
            if has(method.blocks.asks(context), k):
                both, columns = mine & held[other], self._learners[other].columns(context.client)
                rows = shown[other] if columns is None else shown[other][:, columns.numpy()]
                answers[k] = (np.flatnonzero(both[mine]), rows[both[held[other]]])
        fused_nd, _ = method.prediction.fuse(shown[name], answers, context)
        decisions = np.zeros(len(mine), dtype=np.float32)
        with learner.evaluating():
            outputs_no = method.prediction.answers(
                learner.models["fusion"], torch.from_numpy(fused_nd), learner.task
            )
        decisions[mine] = decide(learner.task, outputs_no.float()).numpy()
        return decisions

    def _decoded(self, name: str, values: Array) -> Array:
        labels = self._labels[name]
        if labels.task == "regression":
            return np.asarray(values * labels.std + labels.mean)
        places = values.astype(int) if labels.task == "multiclass" else (values > 0).astype(int)
        return np.asarray(self._classes[name][places])

    def _table(self, name: str, features: Block, labels: Array | None, rows: Any) -> Table:
        series = None if labels is None else pl.Series("label", labels[rows], strict=False)
        ids = [str(row) for row in range(len(features))]
        names = tuple(features.columns) if isinstance(features, pl.DataFrame) else ("x",)
        return Table(Path(name), self._spec, ids, names, features, series, untyped=False)


def _as_arrays(blocks: Blocks) -> dict[str, Block]:
    arrays = {
        name: block if isinstance(block, pl.DataFrame) else _numbers(name, np.asarray(block))
        for name, block in blocks.items()
    }
    if not arrays or any(len(array.shape) < 2 for array in arrays.values()):
        raise DataError("blocks are arrays of at least two dimensions, one for each client")
    if len({len(array) for array in arrays.values()}) > 1:
        raise DataError("blocks have a row for each sample, NaN where a client does not have it")
    return arrays


def _numbers(name: str, array: Array) -> Array:
    """Return an array of numbers as it is, and any other as numbers."""
    if array.dtype.kind in "biuf" or array.ndim < 2:
        return array
    try:
        return array.astype(np.float64)
    except (ValueError, TypeError):
        row = next((row for row, values in enumerate(array) if not _is_numeric(values)), 0)
        raise DataError(
            f"the block has a value in row {row} that is no number",
            where=name,
            hint="give an array of numbers, or a polars frame, which may have text",
        ) from None


def _is_numeric(values: Any) -> bool:
    try:
        np.asarray(values).astype(np.float64)
    except (ValueError, TypeError):
        return False
    return True


def _missing(like: Block, num: int) -> Block:
    """Return so many samples of a block that a client has none of."""
    if isinstance(like, pl.DataFrame):
        return like.clear(num)
    return np.full((num, *like.shape[1:]), np.nan, dtype=np.float32)


def _num_samples(arrays: Mapping[str, Block]) -> int:
    return len(next(iter(arrays.values())))


def _labels_by_client(labels: Labels, roster: Sequence[str], num: int) -> dict[str, Array]:
    given = labels if isinstance(labels, Mapping) else dict.fromkeys(roster, labels)
    arrays = {name: np.asarray(array) for name, array in given.items()}
    if not arrays or not set(arrays) <= set(roster):
        raise DataError(f"labels are for clients of the roster, which has {', '.join(roster)}")
    if any(array.shape != (num,) for array in arrays.values()):
        raise DataError(f"labels have one value for each of the {num} samples")
    return arrays


def _observed(array: Block) -> npt.NDArray[np.bool_]:
    if isinstance(array, pl.DataFrame):
        known = array.with_columns(pl.selectors.float().fill_nan(None))
        return known.select(pl.any_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    if array.dtype.kind != "f":
        return np.ones(len(array), dtype=bool)
    return np.asarray(~np.isnan(array.reshape(len(array), -1)).all(axis=1))


def _digests(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Number the samples in place of blinded ids: equal samples are equal, and keep their order."""
    digests = np.zeros((len(rows), DIGEST_BYTES), dtype=np.uint8)
    digests[:, -8:] = rows.astype(">i8").view(np.uint8).reshape(-1, 8)
    return digests


def _classes(labels: LabelEncoding, table: Table) -> Array:
    """Return the classes as the caller wrote them, in the order of the head's outputs."""
    if labels.task == "regression" or table.labels is None:
        return np.empty(0)
    targets, labelled = labels.apply(table)
    written = table.labels.to_numpy()
    order = [
        np.flatnonzero(labelled & (targets == place))[0] for place in range(len(labels.classes))
    ]
    return np.asarray(written[order])
