"""A private alignment of real processes, against the library's bare work of it in the same run."""

import hashlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from nacl.bindings import (
    crypto_core_ed25519_add,
    crypto_core_ed25519_from_uniform,
    crypto_scalarmult,
)

from laser_vfl.core.errors import NotReady
from laser_vfl.data import POINT_BYTES, hash_to_curve, new_scalar
from laser_vfl.local_federation import LocalFederation
from laser_vfl.remote.calls import Access
from laser_vfl.remote.operations import align, coordinator_status

TIMEOUT_S = 6 * 3600.0
SAMPLE = 4000
"""Bare multiplications and hashes of each thread, before and after each alignment."""

MEMORY_POLL_S = 0.02
ABSENT = "nobody"
"""A client of the roster that never joins, so that no run begins."""


@dataclass(frozen=True)
class AlignmentBenchOptions:
    """How much work to measure."""

    sizes: Sequence[int]
    clients: int
    repeats: int


def measure_alignment(options: AlignmentBenchOptions) -> dict[str, Any]:
    """Return the figures of each size, and those of the last size again at the top."""
    num_workers = len(os.sched_getaffinity(0))
    result: dict[str, Any] = {
        "clients": options.clients,
        "workers": num_workers,
        "sizes": [_measure(size, options, num_workers) for size in options.sizes],
    }
    largest = result["sizes"][-1]
    return result | {key: largest[key] for key in ("ids_per_s", "ratio", "bytes_per_id")}


def _measure(num_ids: int, options: AlignmentBenchOptions, num_workers: int) -> dict[str, Any]:
    """Align tables of so many ids again and again, with bare work in between."""
    points = hash_to_curve(
        [str(i) for i in range(SAMPLE)], federation="bench", run="bench", table="bench"
    )
    rounds = []
    with _federation(num_ids, options.clients) as federation:
        address = federation.predict_addresses["client0"]
        processes = [
            psutil.Process(pid) for name, pid in federation.pids.items() if name != "coordinator"
        ]
        multiplication_s = [_bare_multiplication(points, num_workers)]
        hash_s = [_bare_hash(num_workers)]
        for _ in range(options.repeats):
            rounds.append(_align_once(address, processes))
            multiplication_s.append(_bare_multiplication(points, num_workers))
            hash_s.append(_bare_hash(num_workers))
    num_multiplications = num_ids * options.clients**2  # every client multiplies every list
    multiplying_s = num_multiplications * statistics.median(multiplication_s)
    bare_time_s = multiplying_s + num_ids * options.clients * statistics.median(hash_s)
    seconds = statistics.median(one["seconds"] for one in rounds)
    return {
        "ids": num_ids,
        "seconds": round(seconds, 3),
        "ids_per_s": round(num_ids / seconds),
        "multiplication_us": round(statistics.median(multiplication_s) * 1e6, 2),
        "hash_us": round(statistics.median(hash_s) * 1e6, 2),
        "ratio": round(seconds / bare_time_s, 3),
        "ratio_to_multiplications": round(seconds / multiplying_s, 3),
        "ratios": [round(one["seconds"] / bare_time_s, 3) for one in rounds],
        "cores_used": round(statistics.median(one["cores"] for one in rounds), 2),
        "bytes_per_id": round(max(one["bytes"] for one in rounds) / num_ids),
    }


@contextmanager
def _federation(num_ids: int, num_clients: int) -> Iterator[LocalFederation]:
    """Start daemons that wait for a client that never joins."""
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
                    "clients": [*names, ABSENT],
                    "training": {"representation_dim": 1, "batch_size": 1, "epochs": 1},
                    "heartbeat_timeout_s": 60.0,
                }
            )
            federation.start_clients({name: _config(name, address) for name in names}, stay=True)
            _wait_until_registered(address, num_clients)
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


def _wait_until_registered(address: str, num_clients: int) -> None:
    give_up_at = time.monotonic() + TIMEOUT_S
    while time.monotonic() < give_up_at:
        clients = coordinator_status(address, Access())["clients"]
        if sum(client["activity"] == "gathering" for client in clients) == num_clients:
            return
        time.sleep(0.1)
    raise NotReady("the clients did not join")


def _align_once(address: str, processes: Sequence[psutil.Process]) -> dict[str, float]:
    """Return how long an alignment took, how many cores it used, and its memory at one client."""
    before = [process.memory_info().rss for process in processes]
    cpu_s = sum(sum(process.cpu_times()[:2]) for process in processes)
    peaks = list(before)
    done = threading.Event()

    def note_peaks() -> None:
        while not done.wait(MEMORY_POLL_S):
            for k, process in enumerate(processes):
                peaks[k] = max(peaks[k], process.memory_info().rss)

    sampler = threading.Thread(target=note_peaks)
    sampler.start()
    started = time.perf_counter()
    try:
        align(address, Access(), TIMEOUT_S)
    finally:
        done.set()
        sampler.join()
    seconds = time.perf_counter() - started
    used_s = sum(sum(process.cpu_times()[:2]) for process in processes) - cpu_s
    grown = max(peak - start for peak, start in zip(peaks, before, strict=True))
    return {"seconds": seconds, "cores": used_s / seconds, "bytes": grown}


def _bare_multiplication(points: bytes, num_workers: int) -> float:
    """Return the time of one multiplication by the library alone, with as many threads."""
    scalar = new_scalar()
    parts = [points[i : i + POINT_BYTES] for i in range(0, len(points), POINT_BYTES)]

    def work() -> None:
        for point in parts:
            crypto_scalarmult(scalar, point)

    return _timed(work, num_workers)


def _bare_hash(num_workers: int) -> float:
    """Return the time of bringing one id to the curve by the library alone."""
    digests = [hashlib.sha512(str(i).encode()).digest() for i in range(SAMPLE)]

    def work() -> None:
        for digest in digests:
            halves = (digest[:POINT_BYTES], digest[POINT_BYTES:])
            crypto_core_ed25519_add(*map(crypto_core_ed25519_from_uniform, halves))

    return _timed(work, num_workers)


def _timed(work: Callable[[], None], num_workers: int) -> float:
    """Return the time by the number of items when so many threads each work on a sample."""
    started = time.perf_counter()
    with ThreadPoolExecutor(num_workers) as threads:
        for done in [threads.submit(work) for _ in range(num_workers)]:
            done.result()
    return (time.perf_counter() - started) / (num_workers * SAMPLE)
