"""What an application asks: ids and perhaps features, checked and turned into rows for a model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch

from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.serving.unaligned_ids import NotAligned, UnalignedIds
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.client.tables.table_listing import Blind
from laser_vfl.core.errors import ContractError, DataError, quoted
from laser_vfl.data import Encoding, Table, TableSpec, normalise_id, normalise_ids
from laser_vfl.data.columns.number_column import plain_numbers
from laser_vfl.data.table_report import without_values
from laser_vfl.transport.tensor_codec import TensorSpec, decode_tensor
from laser_vfl.v1 import prediction_pb2 as pb

MAX_ID_LETTERS = 1024
"""Ids of people who are in no table are kept until they are aligned, so their length is limited."""

NOTHING_KNOWN = "no feature of this sample is known"

MAX_LISTED = 10

QUICKLY_RESOLVED = 64
"""So many ids are looked up on the event loop; more of them in a thread."""


@dataclass
class Rows:
    """Those samples of a request that can be answered, and why the others cannot."""

    places: npt.NDArray[np.int64]
    digests: Digests
    inputs: torch.Tensor
    errors: Mapping[int, str]
    not_aligned: NotAligned | None = None

    def take_inputs(self) -> torch.Tensor:
        """Return the features and keep no reference, so that the caller can free them."""
        inputs, self.inputs = self.inputs, torch.empty(0)
        return inputs


def check_request(model: ServedModel, request: pb.PredictRequest) -> None:
    """Refuse a request as a whole."""
    num_ids = len(request.ids)
    most = model.max_rows
    if not num_ids:
        raise DataError("the request has no ids", hint="name at least one sample")
    if num_ids > most:
        raise DataError(
            f"the request has {num_ids} ids, at most {most} are answered at once",
            hint="ask in pieces",
        )
    if max(map(len, request.ids)) > MAX_ID_LETTERS:
        place, text = next(
            (place, text)
            for place, text in enumerate(request.ids, start=1)
            if len(text) > MAX_ID_LETTERS
        )
        raise DataError(
            f"the id of sample {place} has {len(text)} characters, at most {MAX_ID_LETTERS} "
            "are taken",
            hint="shorten it, or leave it out",
        )
    deadline_s = request.deadline_s
    if request.HasField("deadline_s") and not (deadline_s > 0 and math.isfinite(deadline_s)):
        raise DataError(
            f"the deadline is {deadline_s:g} s", hint="give a number of seconds above 0"
        )


class RowResolver:
    """Finds the rows that a request is about, or encodes those that came with it."""

    def __init__(self, client: str, blind: Blind, unaligned: UnalignedIds) -> None:
        self._client = client
        self._blind = blind
        self._unaligned = unaligned

    def is_quick(self, request: pb.PredictRequest) -> bool:
        """Tell whether `resolve` is short enough for an event loop, and touches no disk."""
        has_features = request.WhichOneof("features") is not None
        is_noted = has_features and self._unaligned.remembers_requests
        return len(request.ids) <= QUICKLY_RESOLVED and not is_noted

    def resolve(self, model: ServedModel, request: pb.PredictRequest, caller: str) -> Rows:
        """Return the rows of a request, for a model; `caller` is the application that asks."""
        ids, places, errors = _normalised(request.ids)
        kind = request.WhichOneof("features")
        if kind is not None:
            encoded, blank = _encoded(model.model.encoding, request, kind)
            is_blank = blank[places]
            errors |= {int(place): NOTHING_KNOWN for place in places[is_blank]}
            ids = [name for name, nothing in zip(ids, is_blank, strict=True) if not nothing]
            places = places[~is_blank]
            digests = self._blind(ids)
            # People who are forgotten are answered like people whom this client never held, by what
            # came with the request: otherwise anybody who may ask could tell who is on the list.
            not_aligned = self._unaligned.remember(model, ids, digests, caller)
            if len(places) < len(encoded):
                encoded = encoded[torch.from_numpy(places)]
            return Rows(places, digests, encoded, errors, not_aligned)
        digests = self._blind(ids)
        row_index = model.row_index  # taken once: it may be replaced meanwhile
        rows = row_index.find(digests)
        held = rows >= 0
        reason = f"{self._client} does not hold this sample"
        errors |= {int(place): reason for place in places[~held]}
        return Rows(
            places[held],
            digests[held],
            row_index.inputs(rows[held]) if held.any() else torch.empty(0),
            errors,
        )


def _normalised(
    texts: Sequence[str],
) -> tuple[list[str], npt.NDArray[np.int64], dict[int, str]]:
    """Return the ids in their normal form, where they stand, and what is wrong with the others."""
    try:
        return normalise_ids(texts), np.arange(len(texts)), {}
    except DataError:
        pass  # now one by one, to see which
    ids: list[str] = []
    places: list[int] = []
    errors: dict[int, str] = {}
    for place, text in enumerate(texts):
        try:
            ids.append(normalise_id(text))
            places.append(place)
        except DataError as error:
            errors[place] = error.message
    return ids, np.array(places, dtype=np.int64), errors


def _encoded(
    encoding: Encoding, request: pb.PredictRequest, kind: str
) -> tuple[torch.Tensor, npt.NDArray[np.bool_]]:
    """Encode features that came with the request, as the tables are encoded.

    Samples without any value are marked: there is nothing to predict them from.
    """
    ids = list(request.ids)
    names = encoding.column_names
    untyped = kind == "columns"
    features: pl.DataFrame | npt.NDArray[np.float32]
    if kind == "columns":
        if names is None:
            raise DataError("this client's block is an array", hint="send the features as an array")
        features = _frame(request.columns, encoding, names, len(ids))
    else:
        features = _array(request, encoding, names)
        if names is not None:
            features = pl.DataFrame(features, schema=list(names))
    spec = TableSpec("id")
    table = Table(Path("features"), spec, ids, names or ("x",), features, None, untyped=untyped)
    return torch.from_numpy(encoding.apply(table)), without_values(table, encoding)


def _frame(
    message: pb.FeatureColumns, encoding: Encoding, names: tuple[str, ...], num_ids: int
) -> pl.DataFrame:
    columns: dict[str, pl.Series] = {}
    for column in message.columns:
        if column.name in columns:
            raise DataError(f"the feature {quoted(column.name)} is sent twice", hint="send it once")
        if column.name not in names and column.name not in encoding.unused_columns:
            raise DataError(
                f"this client has no feature {quoted(column.name)}",
                hint=f"it has {_listed(names)}",
            )
        if len(column.values) != num_ids:
            raise DataError(
                f"the feature {quoted(column.name)} has {len(column.values)} values for "
                f"{num_ids} ids",
                hint="send one value for each id, empty where it is not known",
            )
        for row, value in enumerate(column.values):
            if value.strip().lower() == "nan":
                raise _not_a_number(f"the feature {quoted(column.name)}", row)
        texts = pl.Series(column.name, [value or None for value in column.values], pl.String)
        is_plain = column.decimal_point and column.name in encoding.comma_columns
        columns[column.name] = plain_numbers(texts, Path("features")) if is_plain else texts
    if not columns:
        raise DataError("the request has features without columns", hint=f"name {_listed(names)}")
    unknown = pl.Series([None] * num_ids, dtype=pl.String)
    return pl.DataFrame({name: columns.get(name, unknown) for name in names})


def _array(
    request: pb.PredictRequest, encoding: Encoding, names: tuple[str, ...] | None
) -> npt.NDArray[np.float32]:
    if encoding.text_columns:
        raise DataError(
            f"an array holds numbers, and {_listed(encoding.text_columns)} hold text",
            hint="send the features as columns, by their names",
        )
    shape = (len(request.ids), *((len(names),) if names else encoding.input_shape))
    try:
        array = decode_tensor(request.array, TensorSpec(shape, torch.float32)).numpy()
    except ContractError as error:
        columns = f": {_listed(names)}" if names else ""
        raise DataError(
            f"the features do not fit: {error.message}",
            hint=f"this client's rows have the shape {list(shape[1:])}{columns}",
        ) from None
    finite = np.isfinite(array).reshape(len(array), -1).all(axis=1)
    if not finite.all():
        raise _not_a_number("a feature", int((~finite).argmax()))
    return array


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def _not_a_number(what: str, row: int) -> DataError:
    return DataError(
        f"{what} of sample {row + 1} is not a finite number",
        hint="send a number, or an empty value in a column where it is not known",
    )
