"""The state directory: models, scores, metrics, where peers were last seen. No pickle."""

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import nn

from laser_vfl.atomic_files import remove_file, replace_link
from laser_vfl.client.storage.state_files import read_json, replace, writing
from laser_vfl.core.errors import ConfigError, DataError, StateUnwritable, quoted
from laser_vfl.private_files import keep_private, make_private_directory, open_private
from laser_vfl.rotating_files import MAX_BYTES, make_room

log = logging.getLogger(__name__)

MANIFEST_VERSION = 3

KEY_BYTES = 32

BUSY_S = 5.0
"""How long a daemon that is about to end has to let go of the directory."""

BUSY_POLL_S = 0.05

BYTES_PER_PERSON = 128
ROOM_BYTES = 1 << 20
"""More than an alignment leaves on disk: for each person, and for everything else."""

MAX_METRICS_BYTES = MAX_BYTES
"""Of metrics.jsonl, before it becomes metrics.jsonl.1."""

NEXT = "next_model.json"
"""Which model is not served yet, because some organisation holds it back."""

_RUN = re.compile(r"[0-9A-Za-z_-]{1,64}")


class StateDirectory:
    """The files of one client. A file is either the old one or the new one, never half of one.

    Models lie in `models/<run>`; the link `model` points to the one that is served. There are two
    at rest: the one that is served, and the one before it, or the one after it that is held back.
    """

    def __init__(self, path: Path, *, where: str = "state") -> None:
        self.path = path
        self._where = where
        self._can_write_metrics = True
        self._metrics_lock = Lock()
        try:
            make_private_directory(path / "models")
            open_private(path / "metrics.jsonl", "a").close()
        except OSError as error:
            raise _unwritable(path, error, where) from None
        link = path / "model"
        if link.exists() and not link.is_symlink():
            raise ConfigError(
                f"{link} is not a link to a model",
                where=where,
                hint="move it away, or change `state`",
            )

    @contextmanager
    def held(self, patience_s: float = BUSY_S) -> Iterator[None]:
        """Hold the lock of the directory. The system releases it when a process is killed."""
        try:
            file = open_private(self.path / "lock", "ab")
        except OSError as error:
            raise _unwritable(self.path, error, self._where) from None
        with file:
            give_up_at = time.monotonic() + patience_s
            while not _lock(file.fileno()):
                if time.monotonic() > give_up_at:
                    raise ConfigError(
                        f"another daemon uses the directory {self.path}",
                        where=self._where,
                        hint="stop that one first, or change `state`",
                    )
                time.sleep(BUSY_POLL_S)
            keep_private(self.path)
            yield

    def write_model(self, run: str, models: nn.Module, manifest: Mapping[str, Any]) -> None:
        """Write the parameters and, after them, the manifest that vouches for them."""
        directory = self.path / "models" / run
        with writing(directory):
            make_private_directory(directory)
        # Clones, because the format does not allow the shared memory of tied weights.
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in models.state_dict().items()
        }
        content = save(tensors)
        replace(directory / "model.safetensors", content)
        digest = hashlib.sha256(content).hexdigest()
        written = {"version": MANIFEST_VERSION, "run": run, **manifest, "sha256": digest}
        self._write_json(directory / "manifest.json", written)

    def publish(self, run: str) -> None:
        """Make a written model the one that is served; the one before it is kept, older ones go."""
        before = self._linked
        scores = self._read_manifest(run)["scores"]
        if scores is not None:
            self._write_json(self.path / "scores.json", {"run": run, **scores})
        with writing(self.path / "model"):
            replace_link(self.path / "model", Path("models") / run)
            remove_file(self.path / NEXT)
        self._drop_models(run, before)

    def keep_next(self, run: str, *, is_published: bool) -> None:
        """Note that a written model is not served yet; of others only the served one is kept."""
        self._write_json(self.path / NEXT, {"run": run, "is_published": is_published})
        self._drop_models(run, self._linked)

    def forget_next(self) -> None:
        """Forget that there is a model that is not served yet."""
        with writing(self.path / NEXT):
            remove_file(self.path / NEXT)

    def read_next(self) -> tuple[str, bool] | None:
        """Return the run whose model is not served yet, and whether it is published here."""
        try:
            stored = json.loads((self.path / NEXT).read_text())
            run, is_published = str(stored["run"]), stored["is_published"] is True
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return (run, is_published) if run != self._linked and self.has_model(run) else None

    def _drop_models(self, *kept: str | None) -> None:
        """Remove all models but these, and what there is already of that of a run under way."""
        kept = (*kept, self.unfinished_run())
        for directory in (self.path / "models").iterdir():
            if directory.name not in kept:
                shutil.rmtree(directory, ignore_errors=True)

    @property
    def published_run(self) -> str | None:
        """The run of the model that is served, if there is one."""
        run = self._linked
        if run is not None and not is_run_id(run):
            raise unusable(self.path / "model", f"the link names {quoted(run)}, which is no run")
        return run

    def has_model(self, run: str) -> bool:
        """Tell whether a whole model of a run is there."""
        if not is_run_id(run):
            return False
        return (self.path / "models" / run / "manifest.json").is_file()

    def read_model(self, run: str) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return the manifest and the parameters of a run's model, if they are what was written."""
        directory = self.path / "models" / run
        manifest = self._read_manifest(run)
        try:
            content = (directory / "model.safetensors").read_bytes()
        except OSError as error:
            raise unusable(directory, f"it cannot be read ({error.strerror})") from None
        if hashlib.sha256(content).hexdigest() != manifest.get("sha256"):
            raise unusable(directory, "model.safetensors is not the file that was written")
        try:
            return manifest, load(content)
        except SafetensorError:
            raise unusable(directory, "model.safetensors does not hold tensors") from None

    def check_room(self, num_people: int) -> None:
        """Raise unless what an alignment of so many people leaves here could be written now."""
        temporary = self.path / ".room.tmp"
        try:
            with open_private(temporary, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, BYTES_PER_PERSON * num_people + ROOM_BYTES)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
                return  # this file system cannot tell
            raise StateUnwritable(
                f"the state directory cannot be written ({error.strerror})",
                where=str(self.path),
                hint="free some space, or make it writable",
            ) from None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def model_directory(self, run: str) -> Path:
        """Where the model of a run is, with all that belongs to it."""
        return self.path / "models" / run

    def model_runs(self) -> list[str]:
        """Return the runs with more than checkpoints; none where they cannot be listed."""
        return [directory.name for directory in (self.path / "models").glob("*")]

    def run_directory(self, run: str) -> Path:
        """Where the traces of a run under way are."""
        return self.path / "runs" / run

    def unfinished_run(self) -> str:
        """Return the run that this client could come back to; empty if there is none."""
        records = (self.path / "runs").glob("*/alignment.safetensors")
        newest = max(records, key=lambda path: path.stat().st_mtime, default=None)
        return newest.parent.name if newest is not None else ""

    def forget_runs(self, but: str = "") -> None:
        """Remove the traces of all other runs."""
        for directory in (self.path / "runs").glob("*"):
            if directory.name != but:
                shutil.rmtree(directory, ignore_errors=True)

    def drop_failed_runs(self, but: str = "") -> None:
        """Remove the scalars and pseudonyms of all runs without a model, except one."""
        for run in self.model_runs():
            if run not in (but, self._linked):
                self._drop_without_model(run)

    def end_run(self, run: str) -> None:
        """Remove what is needed to come back to a run; the log of its steps stays.

        Without a model, its scalar and pseudonyms go, too: nobody will ask by them.
        """
        directory = self.run_directory(run)
        (directory / "alignment.safetensors").unlink(missing_ok=True)
        shutil.rmtree(directory / "checkpoints", ignore_errors=True)
        self._drop_without_model(run)

    def own_key(self) -> bytes:
        """Return the key that this client lists its people by; made once, and never shown.

        A key that cannot be used is not replaced: the list of people to forget belongs to it.
        """
        path = self.path / "own.key"
        try:
            key = path.read_bytes()
        except FileNotFoundError:
            key = secrets.token_bytes(KEY_BYTES)
            replace(path, key)
        except OSError as error:
            raise _unusable_key(path, f"cannot be read ({error.strerror})") from None
        if len(key) != KEY_BYTES:
            raise _unusable_key(path, f"has {len(key)} bytes, not {KEY_BYTES}")
        return key

    def write_listening(self, **addresses: str) -> None:
        """Say where this daemon can be asked, for commands on the same machine."""
        self._write_json(self.path / "listening.json", addresses)

    def write_addresses(self, addresses: Mapping[str, str]) -> None:
        """Remember where peers were last seen, for a start without the coordinator."""
        self._write_json(self.path / "peers.json", addresses)

    def read_addresses(self) -> dict[str, str]:
        """Return where peers were last seen."""
        return read_addresses(self.path)

    @property
    def _linked(self) -> str | None:
        """What the link `model` names, whoever has made it."""
        link = self.path / "model"
        return os.readlink(link).rpartition("/")[2] if link.is_symlink() else None

    def _drop_without_model(self, run: str) -> None:
        if is_run_id(run) and not self.has_model(run):
            shutil.rmtree(self.model_directory(run), ignore_errors=True)

    def _read_manifest(self, run: str) -> dict[str, Any]:
        directory = self.path / "models" / run
        try:
            manifest = read_json(directory / "manifest.json")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not JSON"
            raise unusable(directory, f"its manifest cannot be read ({reason})") from None
        if not isinstance(manifest, dict) or manifest.get("version") != MANIFEST_VERSION:
            raise unusable(directory, "another release wrote it")
        return manifest

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl; without room for it, training goes on all the same."""
        path, text = self.path / "metrics.jsonl", json.dumps(line) + "\n"
        try:
            with self._metrics_lock:  # lines come from several threads
                make_room(path, len(text), MAX_METRICS_BYTES)
                with open_private(path, "a") as file:
                    file.write(text)
        except OSError as error:
            if self._can_write_metrics:
                log.error("metrics.jsonl cannot be written (%s)", error.strerror)
            self._can_write_metrics = False

    def _write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        replace(path, text.encode())


def _unwritable(path: Path, error: OSError, where: str) -> ConfigError:
    return ConfigError(
        f"the directory {path} cannot be written ({error.strerror})",
        where=where,
        hint="make it writable, or change `state`",
    )


def _unusable_key(path: Path, what: str) -> DataError:
    return DataError(
        f"this client's own key {what}",
        where=str(path),
        hint="restore it; with another key the list of people to forget cannot be used",
    )


def _lock(descriptor: int) -> bool:
    """Lock an open file; False if somebody else has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:  # a file system without locks
        log.warning("the state directory cannot be locked (%s)", error.strerror)
    return True


def read_addresses(state: Path) -> dict[str, str]:
    """Return where peers were last seen, by a directory that may not be there."""
    try:
        stored = read_json(state / "peers.json")
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in stored.items()} if isinstance(stored, dict) else {}


def is_run_id(text: str) -> bool:
    """Tell whether a run's id, which others choose, can be the name of a directory."""
    return _RUN.fullmatch(text) is not None


def unusable(directory: Path, why: str, hint: str = "") -> DataError:
    """Return the error of a model that is there and does not work."""
    return DataError(
        f"the model cannot be used: {why}",
        where=str(directory),
        hint=hint or "remove the link `model` to start without it, and train again",
    )
