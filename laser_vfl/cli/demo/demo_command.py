"""The demo: digits cut into blocks, one organisation each, blocks missing, real processes."""

import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from laser_vfl.cli.demo.demo_report import DemoProgress, print_tables, say, summary
from laser_vfl.data.sets.dataset import ORGANISATIONS
from laser_vfl.data.sets.digits import read_digits
from laser_vfl.data.sets.image_cuts import flat_tiles
from laser_vfl.local_federation import LocalFederation, use_new_directory, write_own_key
from laser_vfl.methods.profiles import DEFAULT_METHOD

TIMEOUT_S = 600.0
TEST_SHARE = 0.25


@dataclass(frozen=True)
class DemoOptions:
    """The options of the demo."""

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
            use_new_directory(directory, "--keep")
        result = _train(options, directory)
    if as_json:
        print(json.dumps(result))
    else:
        print_tables(result, options.p_miss, options.keep)


def _train(options: DemoOptions, directory: Path) -> dict[str, Any]:
    names = ORGANISATIONS[: options.clients]
    _write_tables(options, names, directory)
    for name in names:
        # A real key is random; these follow from the seed, so that a demo can be repeated.
        write_own_key(directory / f"{name}-state", f"laser-vfl demo {name} {options.seed}")
    started = time.monotonic()
    with LocalFederation(directory, insecure=False) as federation:
        address = federation.start_coordinator(_coordinator_config(options, names))
        federation.start_clients({name: _client_config(name, address) for name in names})
        pids = federation.pids
        say(f"coordinator pid {pids.pop('coordinator')} on {address}")
        for name, pid in pids.items():
            say(f"{name} pid {pid}")
        with DemoProgress(directory, names) as watch:
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
            "method": DEFAULT_METHOD,
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
    images, digits = read_digits()
    rng = np.random.default_rng(options.seed)
    is_test = rng.permutation(len(images)) < TEST_SHARE * len(images)
    for name, block in zip(names, flat_tiles(images, options.clients), strict=True):
        held = rng.random(len(images)) >= options.p_miss
        for table, chosen in (("train", held & ~is_test), ("test", held & is_test)):
            columns = {f"pixel_{i}": block[chosen, i] for i in range(block.shape[1])}
            frame = pl.DataFrame(
                {"sample": np.flatnonzero(chosen), **columns, "digit": digits[chosen]}
            )
            frame.write_csv(directory / f"{name}_{table}.csv")
