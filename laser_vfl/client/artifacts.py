"""What a client leaves behind: models, scores, metrics, where peers were last seen. No pickle."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import nn

from laser_vfl.core.errors import ConfigError, DataError, TrainingStopped

MANIFEST_VERSION = 2

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


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with _writing(path):
        with temporary.open("wb") as file:
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
