"""The demo: digits cut into blocks, one organisation each, blocks missing, real processes."""

import hashlib
import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from laser_vfl.cli.demo_report import Watch, print_tables, say, summary
from laser_vfl.cli.processes import LocalFederation
from laser_vfl.core.errors import ConfigError

TIMEOUT_S = 600.0
TEST_SHARE = 0.25
GRIDS = {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2), 5: (1, 5), 6: (2, 3), 7: (1, 7), 8: (2, 4)}
NAMES = ("bank", "shop", "telco", "clinic", "school", "airline", "library", "museum")


@dataclass(frozen=True)
class DemoOptions:
    """What a person may change about the demo."""

    clients: int
    p_miss: float
    epochs: int
    seed: int
    keep: Path | None


def run_demo(options: DemoOptions, *, as_json: bool) -> None:
    """Run the demo and print its result."""
    with ExitStack() as stack:
        directory = options.keep
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="laser-vfl-")))
        else:
            _prepare(directory)
        result = _train(options, directory)
    if as_json:
        print(json.dumps(result))
    else:
        print_tables(result, options.p_miss, options.keep)


def _prepare(directory: Path) -> None:
    hint = "give --keep a new directory"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(f"{directory} is not empty", hint=hint)
    except OSError as error:
        raise ConfigError(f"{directory} cannot be used ({error.strerror})", hint=hint) from None


def _train(options: DemoOptions, directory: Path) -> dict[str, Any]:
    names = NAMES[: options.clients]
    _write_tables(options, names, directory)
    for name in names:
        # A real key is random; these follow from the seed, so that a demo can be repeated.
        key = hashlib.sha256(f"laser-vfl demo {name} {options.seed}".encode()).digest()
        (directory / f"{name}-state").mkdir()
        (directory / f"{name}-state" / "own.key").write_bytes(key)
    started = time.monotonic()
    with LocalFederation(directory, insecure=False) as federation:
        address = federation.start_coordinator(_coordinator_config(options, names))
        federation.start_clients({name: _client_config(name, address) for name in names})
        pids = federation.pids
        say(f"coordinator pid {pids.pop('coordinator')} on {address}")
        for name, pid in pids.items():
            say(f"{name} pid {pid}")
        with Watch(directory, names) as watch:
            federation.wait(TIMEOUT_S, watch)
        seconds = time.monotonic() - started
        pids = federation.pids
    return {
        "clients": list(names),
        "pids": {"coordinator": pids.pop("coordinator"), "clients": pids},
        **summary(directory, names),
        "seconds": round(seconds, 2),
    }


def _coordinator_config(options: DemoOptions, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "federation": "digits",
        "listen": "127.0.0.1:0",
        "state": "./coordinator-state",
        "clients": list(names),
        "training": {
            "method": "laser",
            "representation_dim": 32,
            "batch_size": 64,
            "epochs": options.epochs,
            "seed": options.seed,
        },
    }


def _client_config(name: str, coordinator: str) -> dict[str, Any]:
    return {
        "federation": "digits",
        "name": name,
        "listen": "127.0.0.1:0",
        "coordinator": coordinator,
        "state": f"./{name}-state",
        "data": {
            "train": f"{name}_train.csv",
            "test": f"{name}_test.csv",
            "id": "sample",
            "label": "digit",
        },
        "model": {"representation": "mlp", "hidden": [64, 64], "fusion": "linear"},
        "optimizer": {"name": "adam", "lr": 0.003, "weight_decay": 0.0001, "schedule": "cosine"},
    }


def _write_tables(options: DemoOptions, names: tuple[str, ...], directory: Path) -> None:
    """Cut the 8×8 images into one block per organisation and leave rows out at random."""
    images, digits = _load_digits()
    rng = np.random.default_rng(options.seed)
    is_test = rng.permutation(len(images)) < TEST_SHARE * len(images)
    num_rows, num_columns = GRIDS[options.clients]
    blocks = [
        block.reshape(len(images), -1)
        for strip in np.array_split(images, num_rows, axis=1)
        for block in np.array_split(strip, num_columns, axis=2)
    ]
    for name, block in zip(names, blocks, strict=True):
        held = rng.random(len(images)) >= options.p_miss
        for table, chosen in (("train", held & ~is_test), ("test", held & is_test)):
            columns = {f"pixel_{i}": block[chosen, i] for i in range(block.shape[1])}
            frame = pl.DataFrame(
                {"sample": np.flatnonzero(chosen), **columns, "digit": digits[chosen]}
            )
            frame.write_csv(directory / f"{name}_{table}.csv")


def _load_digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise ConfigError(
            "the demo needs scikit-learn, which is not installed",
            hint="install it with: pip install 'laser-vfl[demo]'",
        ) from None
    data = load_digits()
    return data.images, data.target
