"""This organisation's block: its tables read, checked, encoded and blinded."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from laser_vfl.client.config import ClientConfig, ModelConfig
from laser_vfl.core.errors import LaserError, MismatchError
from laser_vfl.core.fusion import Task
from laser_vfl.core.learner import Learner, OptimizerSettings, Place, initial_randomness
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.subsets import mask_of
from laser_vfl.data import (
    Encoding,
    LabelEncoding,
    Table,
    TableSpec,
    blind_ids,
    check_tables_apart,
    read_table,
)
from laser_vfl.models import (
    build_fusion,
    build_representation,
    check_fusion,
    check_fusion_name,
    check_representation,
    check_representation_name,
)


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
    stamps: tuple[tuple[int, int, int] | None, ...] = ()
    """Of the files, taken before they were read."""

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
        task=data.task,
        class_weights=data.class_weights,
        positive=data.positive,
    )


def file_stamps(config: ClientConfig) -> tuple[tuple[int, int, int] | None, ...]:
    """Return what changes when somebody writes one of the tables."""
    paths = (config.data.train, config.data.test)
    return tuple(_stamp(path) for path in paths if path is not None)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def load_block(config: ClientConfig, key: bytes) -> Block:
    """Read all local files of a client. Every mistake in them is found here.

    Digests of ids are made under `key`.
    """
    data, spec, stamps = config.data, table_spec(config), file_stamps(config)
    with _placed(config.where("model.representation")):
        check_representation_name(config.model.representation)
    with _placed(config.where("model.fusion")):
        check_fusion_name(config.model.fusion)
    train = read_table(data.train, spec)
    test = read_table(data.test, spec) if data.test else None
    if test is not None:
        check_tables_apart(train, test)
    encoding = Encoding.fit(train)
    labels = LabelEncoding.fit(train, spec) if data.label is not None else None

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


def build_models(
    config: ClientConfig,
    block: Block,
    settings: TrainingSettings,
    client: int,
    own: OwnModels = NO_MODELS,
) -> tuple[nn.Module, nn.Module | None]:
    """Build this client's representation model and head, and check that they fit the federation."""
    width = settings.representation_dim
    model = config.model
    if config.representation_dim not in (None, width):
        raise MismatchError(
            f"this client expects {config.representation_dim}, the federation has {width}",
            where=config.where("representation_dim"),
            hint="agree on one width with the coordinator",
        )
    with initial_randomness(settings.seed, client):
        with _placed(config.where("model.representation")):
            representation = own.representation_or(
                lambda: build_representation(
                    model.representation,
                    input_shape=block.encoding.input_shape,
                    representation_dim=width,
                    hidden=model.hidden,
                    options=model.representation_options,
                )
            )
            check_representation(representation, block.encoding.input_shape, width)
        if block.labels is None:
            return representation, None
        with _placed(config.where("model.fusion")):
            num_outputs = block.labels.num_outputs
            fusion = own.fusion_or(
                lambda: build_fusion(
                    model.fusion,
                    representation_dim=width,
                    num_outputs=num_outputs,
                    options=model.fusion_options,
                )
            )
            check_fusion(fusion, width, num_outputs)
    return representation, fusion


def build_learner(
    config: ClientConfig,
    block: Block,
    settings: TrainingSettings,
    roster: Sequence[str],
    heads: Sequence[str],
    device: torch.device,
    own: OwnModels = NO_MODELS,
) -> Learner:
    """Build this client's learner for a run whose heads are known."""
    client = roster.index(config.name)
    representation, fusion = build_models(config, block, settings, client, own)
    return Learner(
        Place(
            client=client,
            num_clients=len(roster),
            heads=mask_of(roster.index(name) for name in heads),
            settings=settings,
        ),
        representation,
        fusion,
        task=block.task,
        optimizer=OptimizerSettings(**config.optimizer.model_dump()),
        device=device,
        precision=config.precision,
    )


@contextmanager
def _placed(where: str) -> Iterator[None]:
    """Say where in the configuration a model that does not work is named."""
    try:
        yield
    except LaserError as error:
        error.where = error.where or where
        raise
