"""One run's checkpoints at one client: tensors, and a note that vouches for them. No pickle."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from laser_vfl.atomic_files import remove_leftovers
from laser_vfl.client.storage.state_files import replace, writing
from laser_vfl.client.storage.tensor_file import tensor_parts
from laser_vfl.private_files import make_private_directory

log = logging.getLogger(__name__)

VERSION = 1

_FILE = re.compile(r"(0|[1-9][0-9]{0,18})\.(safetensors|json)", re.ASCII)
_HINT = "free some space or make the state directory writable; training goes on without it"

Loaded = tuple[int, dict[str, torch.Tensor], dict[str, Any]]


class Checkpoints:
    """The files `<step>.safetensors` and `<step>.json`; a checkpoint has both, or does not count.

    One thread may write while others ask. A checkpoint of step S is the state with all steps below
    S done.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = Lock()
        remove_leftovers(directory)
        self._held = frozenset(step for step in self._steps() if self._is_whole(step))

    @property
    def held(self) -> tuple[int, ...]:
        """The steps of whole checkpoints, ascending. Nothing is read for it."""
        return tuple(sorted(self._held))

    def write(
        self, step: int, tensors: Mapping[str, torch.Tensor], info: Mapping[str, Any]
    ) -> None:
        """Write a checkpoint, and return when it would outlive a crash of the machine."""
        parts = tensor_parts(tensors)
        digest = hashlib.sha256()
        for part in parts:
            digest.update(part)
        note = {
            "version": VERSION,
            "step": step,
            "sha256": digest.hexdigest(),
            "size": sum(map(len, parts)),
            "info": dict(info),
        }
        text = json.dumps(note, indent=2, ensure_ascii=False) + "\n"
        path = self._tensors(step)
        with writing(path, _HINT):
            make_private_directory(self.directory)
            self._count(remove=step)
            self._note(step).unlink(missing_ok=True)
        replace(path, *parts, hint=_HINT)
        replace(self._note(step), text.encode(), hint=_HINT)
        self._count(add=step)

    def load(self, at_most: int | None = None) -> Loaded | None:
        """Return the highest checkpoint up to a step that is what was written, if there is one."""
        for step in reversed(self.held):
            if at_most is not None and step > at_most:
                continue
            try:
                return self._read(step)
            except OSError as error:
                why = error.strerror or type(error).__name__
            except (ValueError, KeyError, TypeError, RecursionError, SafetensorError) as error:
                why = str(error) if type(error) is ValueError else type(error).__name__
            log.warning(
                "checkpoint %s cannot be used (%s); trying one before it", self._tensors(step), why
            )
            self._count(remove=step)
        return None

    def keep(self, steps: Collection[int]) -> None:
        """Remove the checkpoints of all other steps up to the last of these."""
        last = max(steps, default=-1)
        self._remove(lambda step: step not in steps and step < last)

    def drop_after(self, step: int) -> None:
        """Remove the checkpoints of all later steps. None may be under way."""
        self._remove(lambda found: found > step)

    def _read(self, step: int) -> Loaded:
        note = self._read_note(step)
        content = self._tensors(step).read_bytes()
        if hashlib.sha256(content).hexdigest() != note.get("sha256"):
            raise ValueError("it is not the file that was written")
        return step, load(content), note["info"]

    def _read_note(self, step: int) -> dict[str, Any]:
        try:
            note = json.loads(self._note(step).read_text())
        except ValueError:
            raise ValueError("its note is not JSON") from None
        if not isinstance(note, dict) or note.get("version") != VERSION:
            raise ValueError("another release wrote it")
        if note.get("step") != step or not isinstance(note.get("info"), dict):
            raise ValueError("its note is not the one that was written")
        return note

    def _is_whole(self, step: int) -> bool:
        try:
            return bool(self._read_note(step)["size"] == self._tensors(step).stat().st_size)
        except (OSError, ValueError, KeyError, RecursionError):
            return False

    def _steps(self) -> set[int]:
        """Return the steps of all files, whole or not."""
        return {int(found[1]) for found in map(_FILE.fullmatch, self._names()) if found}

    def _names(self) -> Iterator[str]:
        try:
            yield from [path.name for path in self.directory.iterdir()]
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("checkpoints in %s are not seen (%s)", self.directory, error.strerror)

    def _remove(self, unwanted: Callable[[int], bool]) -> None:
        for step in sorted(filter(unwanted, self._steps() | self._held)):
            self._count(remove=step)
            try:
                self._note(step).unlink(missing_ok=True)
                self._tensors(step).unlink(missing_ok=True)
            except OSError as error:
                log.warning(
                    "checkpoint %s stays, it cannot be removed (%s)",
                    self._tensors(step),
                    error.strerror,
                )

    def _count(self, *, add: int | None = None, remove: int | None = None) -> None:
        with self._lock:
            self._held = (self._held - {remove}) | ({add} if add is not None else set())

    def _tensors(self, step: int) -> Path:
        return self.directory / f"{step}.safetensors"

    def _note(self, step: int) -> Path:
        return self.directory / f"{step}.json"
