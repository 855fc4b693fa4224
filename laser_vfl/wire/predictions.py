"""Predictions and features as applications have them, and as they cross the wire. Without torch."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError, ContractError, DataError, quoted
from laser_vfl.core.subsets import MAX_CLIENTS
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1 import tensor_pb2

Features = Any
"""None, columns of values, a mapping for each id, a data frame, or an array (ids, ...)."""

NO_REASON = "the daemon gave no reason"


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a client daemon predicts for n samples; arrays are in the order of `ids`.

    A sample without a prediction has its reason in `errors`, no blocks, and in place of its label
    NaN (regression) or None: `labels` is then an array of objects.
    """

    ids: tuple[str, ...]
    run: str
    task: str
    classes: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[np.float32] | None
    """(n, classes), NaN where there is no prediction; None in a regression."""
    roster: tuple[str, ...]
    blocks: npt.NDArray[np.bool_]
    """(n, clients) in roster order: the blocks that a prediction used."""
    expected_scores: npt.NDArray[np.float64]
    """What the last evaluation says of those blocks; NaN when it does not know."""
    score_name: str
    errors: tuple[str | None, ...]
    peers: dict[str, str]
    """Why a peer's blocks are missing; empty text when it answered."""

    @property
    def block_names(self) -> list[str]:
        """The blocks of each sample as people read them: "bank,shop"."""
        named: dict[bytes, str] = {}
        for row in self.blocks:
            if row.tobytes() not in named:
                used = zip(self.roster, row, strict=True)
                named[row.tobytes()] = ",".join(client for client, has_block in used if has_block)
        return [named[row.tobytes()] for row in self.blocks]


def decode_predictions(ids: Sequence[str], response: pb.PredictResponse) -> Predictions:
    """Return what a daemon answered, or refuse an answer that does not fit the question."""
    num_ids, num_classes = len(ids), len(response.classes)
    is_regression = response.task == "regression"
    if response.task not in ("multiclass", "binary", "regression"):
        raise ContractError(f"there is no task {quoted(response.task)}")
    if bool(num_classes) == is_regression:
        raise ContractError(f"a {response.task} task cannot have {num_classes} classes")
    errors = _errors(response, num_ids)
    failed = np.array([error is not None for error in errors], dtype=bool)
    if failed.all():
        response = _with_blanks(response, num_ids)
    num_labels = 0 if is_regression else num_ids
    _expect(len(response.blocks), num_ids, "sets of blocks")
    _expect(len(response.class_places), num_labels, "classes of samples")
    _expect(len(response.values), num_ids - num_labels, "values")
    _expect(len(response.probabilities), num_labels * num_classes * 4, "bytes of probabilities")
    masks = np.array(response.blocks, dtype=np.uint64)
    masks[failed] = 0
    classes = _classes(response.classes, response.class_kind)
    return Predictions(
        ids=tuple(ids),
        run=response.run,
        task=response.task,
        classes=classes,
        labels=_values(response, failed) if is_regression else _labels(response, classes, failed),
        probabilities=None if is_regression else _probabilities(response, failed),
        roster=tuple(response.roster),
        blocks=_blocks(masks, len(response.roster), failed),
        expected_scores=_expected_scores(response, masks),
        score_name=response.score_name,
        errors=errors,
        peers={peer.client: peer.problem for peer in response.peers},
    )


def encode_request(
    ids: Iterable[Any], deadline: float | None, features: Features
) -> pb.PredictRequest:
    """Return the request to predict samples; ids are text or integers."""
    texts = _as_text(ids)
    deadline_s = checked_deadline_s(deadline)
    fields = encode_features(features, len(texts))
    return pb.PredictRequest(ids=texts, deadline_s=deadline_s, **fields)


def checked_deadline_s(deadline: float | None) -> float | None:
    """Return a deadline in seconds; whatever is none is refused before anything is asked."""
    if deadline is None:
        return None
    if isinstance(deadline, bool) or not isinstance(deadline, int | float | np.number):
        raise ConfigError("a deadline is a number of seconds", hint="give one such as 0.2")
    if not 0 < deadline < math.inf:
        raise ConfigError(f"a deadline cannot be {deadline:g} s", hint="give one such as 0.2")
    return float(deadline)


def encode_features(features: Features, num_ids: int) -> dict[str, Any]:
    """Return the fields of a PredictRequest that carry a client's own features of the samples.

    A frame of pandas or polars is known by its `columns` and `to_dict`; neither is imported here.
    """
    if features is None:
        return {}
    if isinstance(features, np.ndarray):
        return {"array": _encode_array(features, num_ids)}
    if hasattr(features, "columns") and hasattr(features, "to_dict"):
        try:
            features = features.to_dict(as_series=False)
        except TypeError:
            features = features.to_dict(orient="list")
    elif isinstance(features, Sequence) and all(isinstance(row, Mapping) for row in features):
        _expect_rows(len(features), num_ids)
        names = dict.fromkeys(name for row in features for name in row)
        features = {name: [row.get(name) for row in features] for name in names}
    if not isinstance(features, Mapping):
        raise DataError(
            f"features cannot be a {type(features).__name__}",
            hint="give columns of values, a mapping for each id, a data frame or an array",
        )
    if not features and num_ids:
        raise DataError("features have no columns", hint="leave them out, or give some")
    columns = (_encode_column(name, values, num_ids) for name, values in features.items())
    return {"columns": pb.FeatureColumns(columns=columns)}


def _as_text(ids: Iterable[Any]) -> list[str]:
    if isinstance(ids, str | bytes):
        raise DataError("ids are one text", hint="give a list of ids")
    return [_id_text(value, row) for row, value in enumerate(ids, start=1)]


def _id_text(value: Any, row: int) -> str:
    try:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, str):
            value.encode()  # protobuf takes valid Unicode only
            return str(value)
        if not isinstance(value, bool | np.bool_):
            return str(operator.index(value))
    except UnicodeError:
        raise DataError(f"the id of row {row} is not valid Unicode text") from None
    except TypeError:
        pass
    raise DataError(
        f"the id of row {row} is a {type(value).__name__}", hint="give text or an integer"
    )


def _errors(response: pb.PredictResponse, num_ids: int) -> tuple[str | None, ...]:
    errors: list[str | None] = [None] * num_ids
    for error in response.errors:
        if error.place >= num_ids:
            raise ContractError(f"there is no sample {error.place} among {num_ids}")
        errors[error.place] = error.message or NO_REASON
    return tuple(errors)


def _with_blanks(response: pb.PredictResponse, num_ids: int) -> pb.PredictResponse:
    """Fill in what a daemon may leave out when it has no prediction at all."""
    filled = pb.PredictResponse()
    filled.CopyFrom(response)
    if response.task == "regression":
        filled.values[:] = [math.nan] * num_ids
    else:
        filled.class_places[:] = [0] * num_ids
        filled.probabilities = bytes(num_ids * len(response.classes) * 4)
    return filled


def _classes(names: Iterable[str], kind: str) -> npt.NDArray[Any]:
    names = list(names)
    if kind == "boolean":
        if not set(names) <= {"true", "false"}:
            raise ContractError("a boolean class is neither true nor false")
        return np.array([name == "true" for name in names], dtype=bool)
    if kind == "number":
        try:
            return np.array([int(name) for name in names], dtype=np.int64)
        except OverflowError:  # as floats they might not be different from each other
            return np.array(names, dtype=str)
        except ValueError:
            pass
        try:
            return np.array([float(name) for name in names], dtype=np.float64)
        except ValueError:
            raise ContractError("a class that should be a number is none") from None
    return np.array(names, dtype=str)


def _labels(
    response: pb.PredictResponse, classes: npt.NDArray[Any], failed: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    places = np.array(response.class_places, dtype=np.int64)
    places[failed] = 0
    if places.size and places.max() >= len(classes):
        raise ContractError(f"there is no class {places.max()} among {len(classes)}")
    labels = classes[places]
    if failed.any():
        labels = np.array(labels.tolist(), dtype=object)
        labels[failed] = None
    return labels


def _values(response: pb.PredictResponse, failed: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    values = np.array(response.values, dtype=np.float64)
    values[failed] = math.nan
    return values


def _probabilities(
    response: pb.PredictResponse, failed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float32]:
    sent = np.frombuffer(response.probabilities, dtype="<f4")
    probabilities = sent.reshape(len(failed), len(response.classes)).astype(np.float32)
    probabilities[failed] = math.nan
    return probabilities


def _blocks(
    masks: npt.NDArray[np.uint64], num_clients: int, failed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    if num_clients > MAX_CLIENTS:
        raise ContractError(f"a roster has at most {MAX_CLIENTS} clients, not {num_clients}")
    if masks.size and int(masks.max()) >> num_clients:
        raise ContractError(f"a block is of none of the {num_clients} clients")
    if not masks[~failed].all():
        raise ContractError("a prediction used no block")
    shifts = np.arange(num_clients, dtype=np.uint64)
    return (masks[:, None] >> shifts & np.uint64(1)).astype(bool)


def _expected_scores(
    response: pb.PredictResponse, masks: npt.NDArray[np.uint64]
) -> npt.NDArray[np.float64]:
    known = {one.blocks: one.score for one in response.scores if one.HasField("score")}
    return np.array([known.get(int(mask), math.nan) for mask in masks], dtype=np.float64)


def _expect(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise ContractError(f"expected {expected} {what}, got {found}")


def _expect_rows(found: int, num_ids: int) -> None:
    if found != num_ids:
        raise DataError(f"features have {found} rows for {num_ids} ids", hint="give one for each")


def _encode_array(array: npt.NDArray[Any], num_ids: int) -> tensor_pb2.Tensor:
    if array.dtype.kind not in "biuf" or 0 in array.shape[1:] or array.ndim == 0:
        raise DataError(
            f"features cannot be an array of {array.dtype} with the shape {array.shape}",
            hint="give numbers in the shape (ids, features), or more dimensions",
        )
    _expect_rows(len(array), num_ids)
    with np.errstate(over="ignore"):  # infinity is for the daemon to refuse
        data = array.astype("<f4")
    shape = data.shape if data.ndim > 1 else (num_ids, 1)
    return tensor_pb2.Tensor(dtype=tensor_pb2.DTYPE_FLOAT32, shape=shape, data=data.tobytes())


def _encode_column(name: Any, values: Any, num_ids: int) -> pb.FeatureColumn:
    if not isinstance(name, str):
        raise DataError(f"a column cannot be called {quoted(repr(name))}", hint="use text")
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise DataError(
            f"column {quoted(name)} is one {type(values).__name__}", hint="give a value for each id"
        )
    texts = [_text(value, name) for value in values]
    _expect_rows(len(texts), num_ids)
    return pb.FeatureColumn(name=name, values=texts)


def _text(value: Any, column: str) -> str:
    """A value as in a CSV file. NaN is passed on: only the daemon knows whether it is allowed."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating):
        return repr(float(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, Decimal):
        return str(value)
    raise DataError(
        f"column {quoted(column)} holds a {type(value).__name__}",
        hint="give text, numbers, booleans or None",
    )
