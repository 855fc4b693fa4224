"""`bench align`: an alignment of real processes, and as many bare multiplications, in one run."""

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from nacl.bindings import crypto_scalarmult_ed25519_noclamp
from rich.console import Console

from laser_vfl.cli.processes import LocalFederation
from laser_vfl.core.errors import NotReady
from laser_vfl.data import POINT_BYTES, hash_to_curve, new_scalar
from laser_vfl.remote.calls import Access
from laser_vfl.remote.operations import align, coordinator_status

TIMEOUT_S = 6 * 3600.0
SAMPLE = 4000
"""How many bare multiplications each thread does, before and after each alignment."""

WATCH_S = 0.02
NOBODY = "nobody"
"""A client of the roster that never comes, so that no run begins."""


@dataclass(frozen=True)
class BenchOptions:
    """How much work to measure."""

    sizes: Sequence[int]
    clients: int
    repeats: int


def run_bench_align(options: BenchOptions, *, as_json: bool) -> None:
    """Measure and print."""
    num_workers = len(os.sched_getaffinity(0))
    result: dict[str, Any] = {
        "clients": options.clients,
        "workers": num_workers,
        "sizes": [_measure(size, options, num_workers) for size in options.sizes],
    }
    largest = result["sizes"][-1]
    result |= {key: largest[key] for key in ("ids_per_s", "ratio", "bytes_per_id")}
    if as_json:
        print(json.dumps(result))
        return
    for size in result["sizes"]:
        Console().print(", ".join(f"{key} {value}" for key, value in size.items()))


def _measure(num_ids: int, options: BenchOptions, num_workers: int) -> dict[str, Any]:
    """Align tables of so many ids again and again, with bare multiplications in between."""
    points = hash_to_curve(
        [str(i) for i in range(SAMPLE)], federation="bench", run="bench", table="bench"
    )
    rounds = []
    with _federation(num_ids, options.clients) as federation:
        address = federation.predict_addresses["client0"]
        processes = [
            psutil.Process(pid) for name, pid in federation.pids.items() if name != "coordinator"
        ]
        bare_s = [_bare(points, num_workers)]
        for _ in range(options.repeats):
            rounds.append(_align_once(address, processes))
            bare_s.append(_bare(points, num_workers))
    # Every id is in two lists, for training and for serving, and every client multiplies each list.
    num_listed = 2 * num_ids
    num_multiplications = num_listed * options.clients**2
    bare_time_s = num_multiplications * statistics.median(bare_s)
    seconds = statistics.median(one["seconds"] for one in rounds)
    return {
        "ids": num_ids,
        "points_per_client": num_listed,
        "seconds": round(seconds, 3),
        "ids_per_s": round(num_ids / seconds),
        "points_per_s": round(num_listed / seconds),
        "bare_us": round(statistics.median(bare_s) * 1e6, 2),
        "ratio": round(seconds / bare_time_s, 3),
        "ratios": [round(one["seconds"] / bare_time_s, 3) for one in rounds],
        "cores_used": round(statistics.median(one["cores"] for one in rounds), 2),
        "bytes_per_id": round(max(one["bytes"] for one in rounds) / num_ids),
    }


@contextmanager
def _federation(num_ids: int, num_clients: int) -> Iterator[LocalFederation]:
    """Start daemons that wait for somebody who never comes."""
    names = [f"client{k}" for k in range(num_clients)]
    with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as name:
        directory = Path(name)
        for k, client in enumerate(names):
            ids = np.arange(num_ids) + k * num_ids // 4
            np.savez(directory / f"{client}.npz", id=ids, x=np.zeros((num_ids, 1), np.float32))
        with LocalFederation(directory, insecure=True) as federation:
            address = federation.start_coordinator(
                {
                    "federation": "bench",
                    "listen": "127.0.0.1:0",
                    "state": "./coordinator-state",
                    "clients": [*names, NOBODY],
                    "training": {"representation_dim": 1, "batch_size": 1, "epochs": 1},
                    "heartbeat_timeout_s": 60.0,
                }
            )
            federation.start_clients({name: _config(name, address) for name in names}, stay=True)
            _wait_until_there(address, num_clients)
            yield federation


def _config(name: str, coordinator: str) -> dict[str, Any]:
    return {
        "federation": "bench",
        "name": name,
        "listen": "127.0.0.1:0",
        "coordinator": coordinator,
        "state": f"./{name}-state",
        "data": {"train": f"{name}.npz", "id": "id"},
        "model": {"representation": "mlp", "hidden": [1]},
        "threads": 1,
        "log_level": "warning",
    }


def _wait_until_there(address: str, num_clients: int) -> None:
    give_up_at = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_at:
        clients = coordinator_status(address, Access())["clients"]
        if sum(client["activity"] == "gathering" for client in clients) == num_clients:
            return
        time.sleep(0.1)
    raise NotReady("the clients did not come")


def _align_once(address: str, processes: Sequence[psutil.Process]) -> dict[str, float]:
    """Return how long an alignment took, how many cores it used, and its memory at one client."""
    before = [process.memory_info().rss for process in processes]
    cpu_s = sum(sum(process.cpu_times()[:2]) for process in processes)
    peaks = list(before)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(WATCH_S):
            for k, process in enumerate(processes):
                peaks[k] = max(peaks[k], process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    try:
        align(address, Access(), TIMEOUT_S)
    finally:
        done.set()
        watcher.join()
    seconds = time.perf_counter() - started
    used_s = sum(sum(process.cpu_times()[:2]) for process in processes) - cpu_s
    grown = max(peak - start for peak, start in zip(peaks, before, strict=True))
    return {"seconds": seconds, "cores": used_s / seconds, "bytes": grown}


def _bare(points: bytes, num_workers: int) -> float:
    """Return the time of one multiplication by the library alone, with as many threads."""
    scalar = new_scalar()
    parts = [points[i : i + POINT_BYTES] for i in range(0, len(points), POINT_BYTES)]

    def work(_: int) -> None:
        for point in parts:
            crypto_scalarmult_ed25519_noclamp(scalar, point)

    started = time.perf_counter()
    with ThreadPoolExecutor(num_workers) as threads:
        list(threads.map(work, range(num_workers)))
    return (time.perf_counter() - started) / (num_workers * len(parts))
