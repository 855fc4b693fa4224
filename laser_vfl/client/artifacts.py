"""What a client leaves behind: models, scores, metrics, where peers were last seen. No pickle."""

import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays
from safetensors.torch import load, save
from torch import nn

from laser_vfl.client.digest_index import Digests
from laser_vfl.client.files import replace, writing
from laser_vfl.client.listing import Keys
from laser_vfl.client.naming import NAME, Naming, places_of
from laser_vfl.core.alignment import Group
from laser_vfl.core.errors import ConfigError, DataError
from laser_vfl.data import read_secret

log = logging.getLogger(__name__)

MANIFEST_VERSION = 3

KEY_BYTES = 32

AreGone = Callable[[Digests], npt.NDArray[np.bool_]]
"""Tells of digests who is forgotten."""

BUSY_S = 5.0
"""How long a daemon that is about to end has to let go of the directory."""

BUSY_POLL_S = 0.05

_RUN = re.compile(r"[0-9A-Za-z_-]{1,64}")


class StateDirectory:
    """The files of one client. A file is either the old one or the new one, never half of one.

    Models lie in `models/<run>`; the link `model` points to the one that is served.
    """

    def __init__(self, path: Path, *, where: str = "state") -> None:
        self.path = path
        self._where = where
        self._can_write_metrics = True
        try:
            (path / "models").mkdir(parents=True, exist_ok=True)
            (path / "metrics.jsonl").touch()
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
        """Be the only daemon here; the system lets go of it for a process that is killed."""
        try:
            file = (self.path / "lock").open("ab")
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
            yield

    def write_model(self, run: str, models: nn.Module, manifest: Mapping[str, Any]) -> None:
        """Write the parameters and, after them, the manifest that vouches for them."""
        directory = self.path / "models" / run
        with writing(directory):
            directory.mkdir(exist_ok=True)
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
        before = self.published_run
        scores = self._read_manifest(run)["scores"]
        if scores is not None:
            self._write_json(self.path / "scores.json", {"run": run, **scores})
        temporary = self.path / ".model.tmp"
        with writing(self.path / "model"):
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(Path("models") / run)
            temporary.replace(self.path / "model")
            older = [d for d in (self.path / "models").iterdir() if d.name not in (run, before)]
        for directory in older:
            shutil.rmtree(directory, ignore_errors=True)

    @property
    def published_run(self) -> str | None:
        """The run of the model that is served, if there is one."""
        link = self.path / "model"
        return os.readlink(link).rpartition("/")[2] if link.is_symlink() else None

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

    def write_naming(self, naming: Naming) -> None:
        """Write how people are named in the model's run. The file has a scalar, and is private."""
        sizes = np.array([group.size for group in naming.groups], dtype=np.uint64)
        masks = np.array([group.observed for group in naming.groups], dtype=np.uint64)
        arrays = {
            "digests": naming.digests,
            "points": naming.points,
            "group": np.ascontiguousarray(naming.names["group"]),
            "place": np.ascontiguousarray(naming.names["place"]),
            "sizes": sizes,
            "masks": masks,
            "scalar": np.frombuffer(naming.scalar, dtype=np.uint8),
        }
        metadata = {"id": naming.id, "run": naming.run, "members": json.dumps(naming.members)}
        path = self.path / "models" / naming.run / "naming.safetensors"
        with writing(path):
            path.parent.mkdir(exist_ok=True)
        replace(path, save_arrays(arrays, metadata), mode=0o600)

    def read_naming(self, run: str) -> Naming | None:
        """Return how people are named in a run's model; None if by digests."""
        path = self.path / "models" / run / "naming.safetensors"
        if not path.is_file():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata()
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            groups = [
                Group(int(mask), int(size))
                for mask, size in zip(arrays["masks"], arrays["sizes"], strict=True)
            ]
            names = np.zeros(len(arrays["group"]), dtype=NAME)
            names["group"], names["place"] = arrays["group"], arrays["place"]
            num = len(names)
            shapes = {name: arrays[name].shape for name in ("digests", "points", "scalar")}
            if shapes != {"digests": (num, 32), "points": (num, 32), "scalar": (32,)}:
                raise ValueError("its parts do not fit")
            if num and int(names["group"].max()) >= len(groups):
                raise ValueError("it has people of no group")
            return Naming(
                metadata["id"],
                metadata["run"],
                json.loads(metadata["members"]),
                arrays["scalar"].tobytes(),
                arrays["digests"],
                arrays["points"],
                groups,
                places_of(names, len(groups)),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError, SafetensorError) as error:
            raise unusable(path, f"{type(error).__name__}") from None

    def purge_naming(self, run: str, have: AreGone) -> Naming | None:
        """Return how people are named in a run's model; rewrite it if somebody is gone."""
        naming = self.read_naming(run)
        if naming is not None and (gone := have(naming.digests)).any():
            naming = naming.without(gone)
            self.write_naming(naming)
        return naming

    def purge_namings(self, have: AreGone) -> None:
        """Rewrite the names of all runs in which somebody is gone."""
        for path in (self.path / "models").glob("*/naming.safetensors"):
            try:
                self.purge_naming(path.parent.name, have)
            except DataError as error:
                log.warning("nobody can be removed from it: %s", error)

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

    def end_run(self, run: str) -> None:
        """Remove what is needed to come back to a run; the log of its steps stays."""
        directory = self.run_directory(run)
        (directory / "alignment.safetensors").unlink(missing_ok=True)
        shutil.rmtree(directory / "checkpoints", ignore_errors=True)

    def own_key(self) -> bytes:
        """Return the key that this client lists its people by; made once, and never shown."""
        path = self.path / "own.key"
        with writing(path):
            if path.is_file() and len(key := path.read_bytes()) == KEY_BYTES:
                return key
        key = secrets.token_bytes(KEY_BYTES)
        replace(path, key, mode=0o600)
        return key

    def keys(self, secret_file: Path | None) -> Keys:
        """Return the keys of a client that may have a secret in common with others."""
        own_key = self.own_key()
        return Keys(digest=read_secret(secret_file) if secret_file else own_key, order=own_key)

    def write_listening(self, listen: str, predict: str) -> None:
        """Say where this daemon can be asked, for commands on the same machine."""
        addresses = {"listen": listen, "predict": predict}
        self._write_json(self.path / "listening.json", addresses)

    def write_addresses(self, addresses: Mapping[str, str]) -> None:
        """Remember where peers were last seen, for a start without the coordinator."""
        self._write_json(self.path / "peers.json", addresses)

    def read_addresses(self) -> dict[str, str]:
        """Return where peers were last seen."""
        return read_addresses(self.path)

    def _read_manifest(self, run: str) -> dict[str, Any]:
        directory = self.path / "models" / run
        try:
            manifest = json.loads((directory / "manifest.json").read_text())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not JSON"
            raise unusable(directory, f"its manifest cannot be read ({reason})") from None
        if not isinstance(manifest, dict) or manifest.get("version") != MANIFEST_VERSION:
            raise unusable(directory, "another release wrote it")
        return manifest

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl; without room for it, training goes on all the same."""
        try:
            with (self.path / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line) + "\n")
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
        stored = json.loads((state / "peers.json").read_text())
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in stored.items()} if isinstance(stored, dict) else {}


def is_run_id(text: str) -> bool:
    """Tell whether a run's id, which others choose, can be the name of a directory."""
    return _RUN.fullmatch(text) is not None


def unusable(directory: Path, why: str) -> DataError:
    """Return the error of a model that is there and does not work."""
    return DataError(
        f"the model cannot be used: {why}",
        where=str(directory),
        hint="remove the link `model` to start without it, and train again",
    )
