"""What a client leaves in its state directory: model, manifest, scores and metrics. No pickle."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from laser_vfl.core.errors import ConfigError, TrainingStopped

MANIFEST_VERSION = 1


class StateDirectory:
    """The files of one client. A file is either the old one or the new one, never half of one."""

    def __init__(self, path: Path, *, where: str = "state") -> None:
        self.path = path
        try:
            (path / "model").mkdir(parents=True, exist_ok=True)
            (path / "metrics.jsonl").touch()
        except OSError as error:
            raise ConfigError(
                f"the directory {path} cannot be written ({error.strerror})",
                where=where,
                hint="make it writable, or change `state`",
            ) from None

    def write_model(self, models: nn.Module, manifest: dict[str, Any]) -> None:
        """Write the parameters and, after them, the manifest that vouches for them."""
        # Clones, because the format does not allow the shared memory of tied weights.
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in models.state_dict().items()
        }
        content = save(tensors)
        _replace(self.path / "model" / "model.safetensors", content)
        self._write_json(
            Path("model/manifest.json"),
            {
                "version": MANIFEST_VERSION,
                **manifest,
                "sha256": hashlib.sha256(content).hexdigest(),
            },
        )

    def write_scores(self, scores: dict[str, Any]) -> None:
        """Write scores.json."""
        self._write_json(Path("scores.json"), scores)

    def append_metrics(self, line: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        path = self.path / "metrics.jsonl"
        with _writing(path), path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _write_json(self, name: Path, content: dict[str, Any]) -> None:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        _replace(self.path / name, text.encode())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with _writing(path):
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainingStopped(
            f"{path} cannot be written ({error.strerror})",
            hint="free some space or make the state directory writable, then start again",
        ) from None
