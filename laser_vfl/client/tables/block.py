"""This organisation's block: its tables read, checked, encoded and blinded."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from laser_vfl.atomic_files import Stamp, stamp
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.work_progress import READING, CountedWork, WorkProgress
from laser_vfl.core.errors import DataError, LaserError
from laser_vfl.core.privacy.keystream import subkey
from laser_vfl.core.privacy.label_noise import LabelNoise
from laser_vfl.core.training.fusion import Task
from laser_vfl.data import (
    VERSION,
    ColumnSpec,
    Encoding,
    KnownLabels,
    LabelEncoding,
    PrivateLabels,
    Table,
    TableSpec,
    blind_ids,
    check_excluded,
    check_tables_apart,
    read_table,
)
from laser_vfl.data.table_report import report_of, surprises
from laser_vfl.models import check_fusion_name, check_hidden, check_representation_name

log = logging.getLogger(__name__)

MAX_WARNINGS = 10
"""How many lines about columns that look wrong are logged."""

Stamps = tuple[Stamp | None, ...]


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
    label_noise: LabelNoise | None = None
    """How the labels of the training table were randomised; None if they are true."""

    @property
    def task(self) -> Task:
        """What this client's head predicts; of no meaning without a head."""
        return self.labels.task if self.labels else "multiclass"


def table_spec(config: ClientConfig) -> TableSpec:
    """Return what the configuration says about the tables."""
    data, private = config.data, config.privacy.labels
    known = None
    if private is not None:
        bounds = None if private.bounds is None else (private.bounds[0], private.bounds[1])
        known = KnownLabels(tuple(private.classes or ()), bounds)
    return TableSpec(
        id=data.id,
        label=data.label,
        features=tuple(data.features) if data.features is not None else None,
        exclude=tuple(data.exclude or ()),
        scaling=data.scaling,
        task=data.task,
        class_weights=data.class_weights,
        positive=data.positive,
        columns={
            name: ColumnSpec(**column.model_dump()) for name, column in (data.columns or {}).items()
        },
        known=known,
    )


def unlabelled_spec(config: ClientConfig) -> TableSpec:
    """Return what is read of a table when labels do not matter: a label is no feature."""
    spec = table_spec(config)
    left_out = () if spec.label is None else (spec.label,)
    return replace(spec, label=None, exclude=(*spec.exclude, *left_out))


def file_stamps(config: ClientConfig) -> Stamps:
    """Return the stamps of the table files, which change when one is written."""
    paths = (config.data.train, config.data.test)
    return tuple(stamp(path) for path in paths if path is not None)


def data_digest(block: Block) -> str:
    """Return a digest of a client's people, labels and encoding, to notice a change of them."""
    digest = hashlib.sha256()
    for table in (block.train, block.test):
        digest.update(f"{-1 if table is None else len(table.digests)};".encode())
        if table is None:
            continue
        digest.update(np.ascontiguousarray(table.digests).tobytes())
        if table.targets is not None and table.labelled is not None:
            digest.update(np.ascontiguousarray(table.targets.numpy()).tobytes())
            digest.update(np.ascontiguousarray(table.labelled).tobytes())
    labels = block.labels.to_json() if block.labels else None
    digest.update(json.dumps([block.encoding.to_json(), labels], sort_keys=True).encode())
    return digest.hexdigest()


def check_model_names(config: ClientConfig) -> None:
    """Refuse the name of a model that does not exist, or layers that it does not read.

    This needs no table, so it comes before anything is read or built.
    """
    with placed(config.where("model.representation")):
        check_representation_name(config.model.representation)
    if "hidden" in config.model.model_fields_set:
        with placed(config.where("model.hidden")):
            check_hidden(config.model.representation)
    with placed(config.where("model.fusion")):
        check_fusion_name(config.model.fusion)


def check_before_start(config: ClientConfig) -> None:
    """Refuse names of models and of excluded columns that do not exist.

    This needs only the header of the training table, so a client can do it before it reads rows.
    """
    check_model_names(config)
    check_excluded(config.data.train, table_spec(config))


def load_block(
    config: ClientConfig,
    key: bytes,
    forgotten: ErasureList | None = None,
    *,
    own_key: bytes = b"",
    progress: WorkProgress | None = None,
    version: int = VERSION,
) -> Block:
    """Read all local files of a client. Every mistake in them is found here.

    Digests of ids are made under `key`. People to forget are left out before anything is fitted.
    `own_key` is this client's secret; only noise on labels is drawn from it. `version` says by
    which rules tables are encoded.
    """
    if forgotten is not None:
        forgotten.refresh()
    check_model_names(config)
    progress = progress or WorkProgress()
    sizes = {path: _size(path) for path in (config.data.train, config.data.test) if path}
    # To encode a table, and to hash its ids, is taken to be as much work as to read it.
    with progress.working(READING, 2 * sum(sizes.values())) as work:
        return _read_block(config, key, forgotten, own_key, work, sizes, version)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # to read it says what is wrong


def _read_block(
    config: ClientConfig,
    key: bytes,
    forgotten: ErasureList | None,
    own_key: bytes,
    work: CountedWork,
    sizes: Mapping[Path, int],
    version: int,
) -> Block:
    data, spec, stamps = config.data, table_spec(config), file_stamps(config)
    train = read_table(data.train, spec)
    work.advance(sizes[data.train])
    test = read_table(data.test, spec) if data.test else None
    work.advance(sizes[data.test] if data.test else 0)
    if test is not None:
        check_tables_apart(train, test)
    if forgotten is None:
        return _encoded_block(config, key, own_key, train, test, stamps, work, version)
    all_rows = (train, test)
    train, test = _remembered(train, forgotten), test and _remembered(test, forgotten)
    if not len(train):
        raise DataError(
            "everybody in this table is forgotten", hint="add rows", where=str(data.train)
        )
    try:
        some_test = test if test and len(test) else None
        block = _encoded_block(config, key, own_key, train, some_test, stamps, work, version)
    except DataError as error:
        if (train, test) != all_rows:
            error.hint += " (rows of people who are forgotten are not counted)"
        raise
    return replace(block, forgotten=forgotten.stamp)


def _remembered(table: Table, forgotten: ErasureList) -> Table:
    gone = forgotten.are(table.ids)
    return table.part(~gone) if gone.any() else table


def _encoded_block(
    config: ClientConfig,
    key: bytes,
    own_key: bytes,
    train: Table,
    test: Table | None,
    stamps: Stamps,
    work: CountedWork,
    version: int,
) -> Block:
    encoding, labels = Encoding.fit(train, version), fit_labels(config, train)
    _log_reading(train, encoding, None if config.privacy.labels else labels)
    private = _private_labels(config, own_key)
    left = work.now.total - work.now.done

    def encoded(table: Table, name: str) -> EncodedTable:
        digests = blind_ids(table.ids, key, config.federation)
        rows = encoding.apply(table)
        for line in surprises(table, encoding, rows):
            log.warning("%s: %s", table.path.name, line)
        inputs = torch.from_numpy(rows)
        if labels is None:
            return EncodedTable(table.ids, digests, inputs)
        if private is not None and name == "train":
            targets, labelled = private.told(table, labels)
        else:
            targets, labelled = labels.apply(table)
        return EncodedTable(
            table.ids,
            digests,
            inputs,
            torch.from_numpy(targets),
            labelled,
            torch.from_numpy(labels.weights(targets, labelled)) if name == "train" else None,
        )

    encoded_train = encoded(train, "train")
    of_train = left * len(train) // (len(train) + (len(test) if test else 0))
    work.advance(of_train)
    encoded_test = encoded(test, "test") if test is not None else None
    work.advance(left - of_train)
    return Block(
        encoding,
        labels,
        train=encoded_train,
        test=encoded_test,
        stamps=stamps,
        label_noise=private.noise(labels) if private and labels else None,
    )


def _log_reading(train: Table, encoding: Encoding, labels: LabelEncoding | None) -> None:
    """Say in short how the columns are read; `laser-vfl data show` says more."""
    report = report_of(train, encoding, labels)
    if report.columns:
        log.info("%s has %s", train.path.name, report.summary)
    for line in report.warnings[:MAX_WARNINGS]:
        log.warning("%s: %s", train.path.name, line)
    if len(report.warnings) > MAX_WARNINGS:
        log.warning("and %d more: see laser-vfl data show", len(report.warnings) - MAX_WARNINGS)


def fit_labels(config: ClientConfig, train: Table) -> LabelEncoding | None:
    """Return how labels are encoded; None without any."""
    spec = table_spec(config)
    if spec.label is None:
        return None
    with placed(config.where("privacy.labels" if spec.known else "data.label")):
        return LabelEncoding.fit(train, spec)


def _private_labels(config: ClientConfig, own_key: bytes) -> PrivateLabels | None:
    private = config.privacy.labels
    if private is None:
        return None
    return PrivateLabels(private.epsilon, subkey(own_key, b"labels") if own_key else b"")


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Say which key of the configuration an error in here is about, unless the error says it."""
    try:
        yield
    except LaserError as error:
        error.where = error.where or where
        raise
