"""What a client leaves behind: models, scores, metrics, where peers were last seen. No pickle."""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays
from safetensors.torch import load, save
from torch import nn

from laser_vfl.client.naming import NAME, Naming, places_of
from laser_vfl.core.alignment import Group
from laser_vfl.core.errors import ConfigError, DataError, TrainingStopped

MANIFEST_VERSION = 3

KEY_BYTES = 32

_RUN = re.compile(r"[0-9A-Za-z_-]{1,64}")


class StateDirectory:
    """The files of one client. A file is either the old one or the new one, never half of one.

    Models lie in `models/<run>`; the link `model` points to the one that is served.
    """

    def __init__(self, path: Path, *, where: str = "state") -> None:
        self.path = path
        try:
            (path / "models").mkdir(parents=True, exist_ok=True)
            (path / "metrics.jsonl").touch()
        except OSError as error:
            raise ConfigError(
                f"the directory {path} cannot be written ({error.strerror})",
                where=where,
                hint="make it writable, or change `state`",
            ) from None
        link = path / "model"
        if link.exists() and not link.is_symlink():
            raise ConfigError(
                f"{link} is not a link to a model",
                where=where,
                hint="move it away, or change `state`",
            )

    def write_model(self, run: str, models: nn.Module, manifest: Mapping[str, Any]) -> None:
        """Write the parameters and, after them, the manifest that vouches for them."""
        directory = self.path / "models" / run
        with _writing(directory):
            directory.mkdir(exist_ok=True)
        # Clones, because the format does not allow the shared memory of tied weights.
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in models.state_dict().items()
        }
        content = save(tensors)
        _replace(directory / "model.safetensors", content)
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
        with _writing(self.path / "model"):
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
        return manifest, load(content)

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
        with _writing(path):
            path.parent.mkdir(exist_ok=True)
        _replace(path, save_arrays(arrays, metadata), mode=0o600)

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

    def own_key(self) -> bytes:
        """Return the key that this client lists its people by; made once, and never shown."""
        path = self.path / "own.key"
        with _writing(path):
            if path.is_file() and len(key := path.read_bytes()) == KEY_BYTES:
                return key
        key = secrets.token_bytes(KEY_BYTES)
        _replace(path, key, mode=0o600)
        return key

    def write_listening(self, predict: str) -> None:
        """Say where this daemon can be asked, for commands on the same machine."""
        self._write_json(self.path / "listening.json", {"predict": predict})

    def write_addresses(self, addresses: Mapping[str, str]) -> None:
        """Remember where peers were last seen, for a start without the coordinator."""
        self._write_json(self.path / "peers.json", addresses)

    def read_addresses(self) -> dict[str, str]:
        """Return where peers were last seen."""
        try:
            stored = json.loads((self.path / "peers.json").read_text())
        except (OSError, ValueError):
            return {}
        return {str(k): str(v) for k, v in stored.items()} if isinstance(stored, dict) else {}

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
        """Append one line to metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        with _writing(path), path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _write_json(self, path: Path, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        _replace(path, text.encode())


def is_run_id(text: str) -> bool:
    """Tell whether a run's id, which others choose, can be the name of a directory."""
    return _RUN.fullmatch(text) is not None


def _replace(path: Path, content: bytes, mode: int = 0o666) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with _writing(path):
        temporary.unlink(missing_ok=True)
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb"
        ) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


def unusable(directory: Path, why: str) -> DataError:
    """Return the error of a model that is there and does not work."""
    return DataError(
        f"the model cannot be used: {why}",
        where=str(directory),
        hint="remove the link `model` to start without it, and train again",
    )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainingStopped(
            f"{path} cannot be written ({error.strerror})",
            hint="free some space or make the state directory writable, then start again",
        ) from None
