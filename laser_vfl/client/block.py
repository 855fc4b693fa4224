"""This organisation's block: its tables read, checked, encoded and blinded."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from laser_vfl.client.config import ClientConfig, ModelConfig
from laser_vfl.client.files import Stamp, stamp
from laser_vfl.client.forgotten import Forgotten
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import DataError, LaserError, MismatchError
from laser_vfl.core.fusion import Task
from laser_vfl.core.keystream import subkey
from laser_vfl.core.learner import Learner, OptimizerSettings, initial_randomness
from laser_vfl.core.method import Method, Parts
from laser_vfl.core.noise import Release
from laser_vfl.core.place import Place
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.data import (
    Encoding,
    LabelEncoding,
    Table,
    TableSpec,
    blind_ids,
    check_tables_apart,
    read_table,
)
from laser_vfl.methods import method_named
from laser_vfl.models import (
    build_fusion,
    build_representation,
    check_fusion,
    check_fusion_name,
    check_representation,
    check_representation_name,
    check_rows_apart,
)

Stamps = tuple[Stamp | None, ...]


@dataclass(frozen=True)
class OwnModels:
    """Modules that were given in Python; None where the configuration names one."""

    representation: nn.Module | None = None
    fusion: nn.Module | None = None

    def left_out_of(self, config: ModelConfig) -> dict[str, Any]:
        """Return what the configuration says of the models, and None where one was given here."""
        given = {"representation": self.representation, "fusion": self.fusion}
        return config.model_dump() | {
            name: None for name, model in given.items() if model is not None
        }

    def representation_or(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Return a copy of the given representation model, or build one."""
        return build() if self.representation is None else copy.deepcopy(self.representation)

    def fusion_or(self, build: Callable[[], nn.Module]) -> nn.Module:
        """Return a copy of the given head, or build one."""
        return build() if self.fusion is None else copy.deepcopy(self.fusion)


NO_MODELS = OwnModels()


@dataclass(frozen=True)
class EncodedTable:
    """The rows of one table as the models see them, their ids, and digests of these."""

    ids: Sequence[str]
    digests: npt.NDArray[np.uint8]
    inputs: torch.Tensor
    targets: torch.Tensor | None = None
    labelled: npt.NDArray[np.bool_] | None = None
    label_weights: torch.Tensor | None = None


@dataclass(frozen=True)
class Block:
    """Everything this organisation brings to the federation."""

    encoding: Encoding
    labels: LabelEncoding | None
    train: EncodedTable
    test: EncodedTable | None
    stamps: Stamps = ()
    """Of the files, taken before they were read."""
    forgotten: Stamp | None = None
    """Of the list of people who are left out."""

    @property
    def task(self) -> Task:
        """What this client's head predicts; of no meaning without a head."""
        return self.labels.task if self.labels else "multiclass"


def table_spec(config: ClientConfig) -> TableSpec:
    """Return what the configuration says about the tables."""
    data = config.data
    return TableSpec(
        id=data.id,
        label=data.label,
        features=tuple(data.features) if data.features is not None else None,
        exclude=tuple(data.exclude or ()),
        scaling=data.scaling,
        task=data.task,
        class_weights=data.class_weights,
        positive=data.positive,
    )


def file_stamps(config: ClientConfig) -> Stamps:
    """Return what changes when somebody writes one of the tables."""
    paths = (config.data.train, config.data.test)
    return tuple(stamp(path) for path in paths if path is not None)


def load_block(config: ClientConfig, key: bytes, forgotten: Forgotten | None = None) -> Block:
    """Read all local files of a client. Every mistake in them is found here.

    Digests of ids are made under `key`. Who is forgotten is left out before anything is fitted.
    """
    if forgotten is not None:
        forgotten.refresh()
    data, spec, stamps = config.data, table_spec(config), file_stamps(config)
    with _placed(config.where("model.representation")):
        check_representation_name(config.model.representation)
    with _placed(config.where("model.fusion")):
        check_fusion_name(config.model.fusion)
    train = read_table(data.train, spec)
    test = read_table(data.test, spec) if data.test else None
    if test is not None:
        check_tables_apart(train, test)
    if forgotten is None:
        return _encoded_block(config, key, train, test, stamps)
    all_rows = (train, test)
    train, test = _remembered(train, forgotten), test and _remembered(test, forgotten)
    if not len(train):
        raise DataError(
            "everybody in this table is forgotten", hint="add rows", where=str(data.train)
        )
    try:
        block = _encoded_block(config, key, train, test if test and len(test) else None, stamps)
    except DataError as error:
        if (train, test) != all_rows:
            error.hint += " (rows of people who are forgotten are not counted)"
        raise
    return replace(block, forgotten=forgotten.stamp)


def _remembered(table: Table, forgotten: Forgotten) -> Table:
    gone = forgotten.are(table.ids)
    return table.part(~gone) if gone.any() else table


def _encoded_block(
    config: ClientConfig, key: bytes, train: Table, test: Table | None, stamps: Stamps
) -> Block:
    spec = table_spec(config)
    encoding = Encoding.fit(train)
    labels = LabelEncoding.fit(train, spec) if spec.label is not None else None

    def encoded(table: Table, name: str) -> EncodedTable:
        digests = blind_ids(table.ids, key, config.federation)
        inputs = torch.from_numpy(encoding.apply(table))
        if labels is None:
            return EncodedTable(table.ids, digests, inputs)
        targets, labelled = labels.apply(table)
        return EncodedTable(
            table.ids,
            digests,
            inputs,
            torch.from_numpy(targets),
            labelled,
            torch.from_numpy(labels.weights(targets, labelled)) if name == "train" else None,
        )

    return Block(
        encoding,
        labels,
        train=encoded(train, "train"),
        test=encoded(test, "test") if test is not None else None,
        stamps=stamps,
    )


def check_noise(config: ClientConfig, block: Block, own: OwnModels = NO_MODELS) -> None:
    """Refuse noise that batch norm makes worthless, as far as the model can be known yet.

    An own factory may need the federation's width; `build_models` looks at what it makes of that.
    """
    model, width = config.model, config.representation_dim
    if own.representation is None and ":" in model.representation and width is None:
        return
    if config.privacy.noise:
        shape = block.encoding.input_shape
        _check_noise(config, _representation(config, shape, width or 1, own))


def build_models(
    config: ClientConfig, block: Block, place: Place, own: OwnModels = NO_MODELS
) -> tuple[nn.Module, nn.Module | None]:
    """Build this client's representation model and head, and check that they fit the federation."""
    settings = place.settings
    width = settings.representation_dim
    if config.representation_dim not in (None, width):
        raise MismatchError(
            f"this client expects {config.representation_dim}, the federation has {width}",
            where=config.where("representation_dim"),
            hint="agree on one width with the coordinator",
        )
    method, parts = method_named(settings.method), _parts(config, block, width, own)
    _check_release(config, method)
    with initial_randomness(settings.seed, place.client):
        representation = method.representation(parts, place)
        if not has(place.heads, place.client):
            return representation, None
        with _placed(config.where("model.fusion")):
            return representation, method.fusion(parts, place)


def _parts(config: ClientConfig, block: Block, width: int, own: OwnModels) -> Parts:
    """Return how to build what the configuration names; each is checked as it is built."""
    num_outputs = block.labels.num_outputs if block.labels else 0
    model = config.model

    def representation(input_shape: tuple[int, ...]) -> nn.Module:
        built = _representation(config, input_shape, width, own)
        with _placed(config.where("model.representation")):
            check_representation(built, input_shape, width)
        _check_noise(config, built)
        return built

    def fusion() -> nn.Module:
        built = own.fusion_or(
            lambda: build_fusion(
                model.fusion,
                representation_dim=width,
                num_outputs=num_outputs,
                options=model.fusion_options,
            )
        )
        check_fusion(built, width, num_outputs)
        return built

    classes = block.labels.classes if block.labels else ()
    return Parts(representation, fusion, block.encoding.input_shape, num_outputs, classes)


def _check_release(config: ClientConfig, method: Method) -> None:
    """Refuse bounds and noise for what is no representation."""
    if config.privacy.clip is not None and not method.releases_representations:
        raise MismatchError(
            "bounds and noise are for methods in which a client lets out one representation",
            where=config.where("privacy.clip"),
            hint="leave `privacy` out, or agree on training.method: laser with the coordinator",
        )


def build_learner(
    config: ClientConfig,
    block: Block,
    settings: TrainingSettings,
    roster: Sequence[str],
    heads: Sequence[str],
    device: torch.device,
    own: OwnModels = NO_MODELS,
    *,
    alignment: ClientAlignment | None = None,
    own_key: bytes = b"",
) -> Learner:
    """Build this client's learner for a run, of which it is known who has labels (`heads`).

    `alignment` is that of the training table. `own_key` is this client's secret; only noise is
    drawn from it.
    """
    method = method_named(settings.method)
    place = Place(
        client=roster.index(config.name),
        num_clients=len(roster),
        heads=method.heads(mask_of(roster.index(name) for name in heads)),
        settings=settings,
        groups=alignment.groups if alignment else (),
    )
    representation, fusion = build_models(config, block, place, own)
    return Learner(
        place,
        representation,
        fusion,
        task=block.task,
        optimizer=OptimizerSettings(**config.optimizer.model_dump()),
        device=device,
        precision=config.precision,
        release=release_of(config.privacy.clip, config.privacy.noise, own_key),
        method=method,
        scratch=method.scratch(place, alignment) if alignment else None,
    )


def release_of(clip: float | None, noise: float, own_key: bytes) -> Release | None:
    """Return how representations leave this client; None if as they are."""
    if clip is None:
        return None
    return Release(clip, noise, subkey(own_key, b"noise") if own_key else b"")


def _representation(
    config: ClientConfig, input_shape: tuple[int, ...], width: int, own: OwnModels
) -> nn.Module:
    model = config.model
    with _placed(config.where("model.representation")):
        return own.representation_or(
            lambda: build_representation(
                model.representation,
                input_shape=input_shape,
                representation_dim=width,
                hidden=model.hidden,
                options=model.representation_options,
            )
        )


def _check_noise(config: ClientConfig, representation: nn.Module) -> None:
    if config.privacy.noise:
        with _placed(config.where("privacy.noise")):
            check_rows_apart(representation)


@contextmanager
def _placed(where: str) -> Iterator[None]:
    """Say where in the configuration a model that does not work is named."""
    try:
        yield
    except LaserError as error:
        error.where = error.where or where
        raise
