"""What a client needs to come back to a run: its alignment, its settings and whose run it is."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.client.storage.tensor_file import read_arrays, write_arrays
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.methods.training_settings import TrainingSettings

log = logging.getLogger(__name__)

VERSION = 1
FILE_NAME = "alignment.safetensors"

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class RunRecord:
    """A run as one client knows it. `tables` tells rows of its own tables, by table."""

    run: str
    roster: tuple[str, ...]
    scheme: str
    settings: TrainingSettings
    heads: tuple[str, ...]
    tables: Mapping[str, ClientAlignment]
    data_sha256: str


def write_record(directory: Path, record: RunRecord) -> None:
    """Write the record of a run; it says whom the client has in common with others: private."""
    text = json.dumps(
        {
            "version": VERSION,
            "run": record.run,
            "roster": record.roster,
            "scheme": record.scheme,
            "settings": record.settings.model_dump(mode="json"),
            "heads": record.heads,
            "tables": list(record.tables),
            "data_sha256": record.data_sha256,
        }
    )
    arrays = {
        f"{table}.{name}": array
        for table, alignment in record.tables.items()
        for name, array in _arrays(alignment).items()
    }
    path = directory / FILE_NAME
    write_arrays(path, arrays, {"record": text, "sha256": _digest(text, arrays)})


def read_record(directory: Path) -> RunRecord | None:
    """Return the record of a run, None if there is none that can be used."""
    path = directory / FILE_NAME
    if not path.is_file():
        return None
    try:
        arrays, metadata = read_arrays(path)
        if _digest(metadata["record"], arrays) != metadata["sha256"]:
            raise ValueError("it is not what was written")
        return _record(json.loads(metadata["record"]), arrays)
    except OSError as error:
        why = error.strerror or type(error).__name__
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        why = str(error) if type(error) is ValueError else type(error).__name__
    log.warning("%s cannot be used (%s); this client cannot come back to that run", path, why)
    return None


def _arrays(alignment: ClientAlignment) -> dict[str, npt.NDArray[Any]]:
    mine = sorted(alignment.rows)
    rows = [np.asarray(alignment.rows[g], dtype=np.int64) for g in mine]
    return {
        "masks": np.array([group.observed for group in alignment.groups], dtype=np.uint64),
        "sizes": np.array([group.size for group in alignment.groups], dtype=np.int64),
        "mine": np.array(mine, dtype=np.int64),
        "rows": np.concatenate([np.empty(0, dtype=np.int64), *rows]),
    }


def _record(stored: Mapping[str, Any], arrays: Arrays) -> RunRecord:
    if stored["version"] != VERSION:
        raise ValueError("another release wrote it")
    return RunRecord(
        run=_text(stored["run"]),
        roster=_texts(stored["roster"]),
        scheme=_text(stored["scheme"]),
        settings=TrainingSettings.model_validate(stored["settings"]),
        heads=_texts(stored["heads"]),
        tables={table: _alignment(table, arrays) for table in _texts(stored["tables"])},
        data_sha256=_text(stored["data_sha256"]),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("it has something else where text belongs")
    value.encode()  # which half a surrogate pair is not
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError("it has something else where a list belongs")
    return tuple(map(_text, values))


def _alignment(table: str, arrays: Arrays) -> ClientAlignment:
    """Cut the rows of all groups apart: each has as many as its group has samples."""
    masks, sizes, mine, rows = (arrays[f"{table}.{n}"] for n in ("masks", "sizes", "mine", "rows"))
    if any(array.ndim != 1 or array.dtype.kind not in "iu" for array in (masks, sizes, mine, rows)):
        raise ValueError("its parts are not lists of whole numbers")
    if (sizes < 0).any() or (mine < 0).any() or len(np.unique(mine)) < len(mine):
        raise ValueError("its parts do not fit")
    ends = np.cumsum(sizes[mine])
    if len(masks) != len(sizes) or len(rows) != (ends[-1] if len(ends) else 0):
        raise ValueError("its parts do not fit")
    groups = tuple(map(Group, masks.tolist(), sizes.tolist()))
    starts = ends - sizes[mine]
    cuts = zip(mine.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return ClientAlignment(groups, {g: rows[start:end] for g, start, end in cuts})


def _digest(text: str, arrays: Arrays) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        digest.update(f";{name};{len(arrays[name])};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return digest.hexdigest()
