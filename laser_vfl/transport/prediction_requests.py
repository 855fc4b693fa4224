"""Questions of applications, as they cross the wire: ids, deadlines and features. Without torch."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ConfigError, DataError, quoted
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1 import tensor_pb2

Features = Any
"""None, columns of values, a mapping for each id, a data frame, or an array (ids, ...)."""


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
    values = list(values)
    _expect_rows(len(values), num_ids)
    texts = [_text(value, name) for value in values]
    has_point = any(isinstance(value, float | np.floating | Decimal) for value in values)
    return pb.FeatureColumn(name=name, values=texts, decimal_point=has_point)


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
        hint="give text, numbers, booleans or None; a date as text, as the tables write it",
    )
