"""OUT/experiment.json: which experiment a directory has, and the notes of its data sets."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from laser_vfl.atomic_files import replace_file
from laser_vfl.core.errors import ConfigError

NAME = "experiment.json"


@dataclass(frozen=True)
class Record:
    """The kind of an experiment, such as `table` or `ablation batching`."""

    kind: str
    notes: Mapping[str, list[str]] = field(default_factory=dict)


def read_record(directory: Path) -> Record | None:
    """Return the record of a directory, or None when nothing was run there."""
    path = directory / NAME
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be written again
        return Record(str(found["kind"]), dict(found["notes"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(
            f"cannot be read ({error.strerror})", where=str(path), hint="give another directory"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            "this is no record of an experiment", where=str(path), hint="give another directory"
        ) from None


def write_record(directory: Path, kind: str, notes: Mapping[str, list[str]]) -> None:
    """Keep a record, with new notes added to those that are there; it appears when complete."""
    before = read_record(directory)
    if before and before.kind != kind:
        raise ConfigError(
            f"has the results of `experiment {before.kind}`, not of `{kind}`",
            where=str(directory),
            hint="give another --out",
        )
    record = Record(kind, {**(before.notes if before else {}), **notes})
    path = directory / NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n"
        replace_file(path, text.encode())
    except OSError as error:
        raise ConfigError(
            f"cannot be written ({error.strerror})", where=str(path), hint="give another --out"
        ) from None
