"""Latency and throughput of predictions, against bare gRPC and a single process."""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.own_models import NO_MODELS
from laser_vfl.client.serving.models.published_model import PublishedModel, load_published
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.config.loading import load_config
from laser_vfl.core.errors import NotReady
from laser_vfl.local_federation import LocalFederation
from laser_vfl.private_files import FILE_MODE
from laser_vfl.remote.predictor import Predictor

NUM_FEATURES, WIDTH, NUM_CLASSES = 140, 128, 12
NUM_TRAIN, NUM_TEST = 2_000, 20_000
CHUNK = 1_000
BLOCK = 100
"""Requests and echoes alternate in blocks of this many, so that the machine treats both alike."""
ECHOED = bytes(250)
"""About as many bytes as the answer about one sample has: run, classes, roster, probabilities."""
NUM_CALLERS = 32
DEADLINE_S = 0.2
TIMEOUT_S = 300.0
ID_SECRET = "id.secret"
"""Ids are compared under a secret, because that is soon done, and not what is measured here."""


@dataclass(frozen=True)
class PredictionBenchOptions:
    """How much work to measure."""

    requests: int
    clients: int


def measure_predictions(options: PredictionBenchOptions) -> dict[str, Any]:
    """Return latencies, throughput and their ratios to what they are compared with."""
    torch.set_num_threads(1)
    names = [f"client{k}" for k in range(options.clients)]
    with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as name:
        directory = Path(name)
        configs = _write_inputs(directory, names)
        result: dict[str, Any] = {"clients": options.clients, "requests": options.requests}
        with (
            _federation(directory, configs, batch=True) as federation,
            Predictor(federation.predict_addresses[names[0]]) as predictor,
        ):
            _wait_until_served(predictor)
            result |= _latency(predictor, options.requests)
            result |= _throughput(predictor, directory, configs)
            batched = _requests_per_s(predictor, options.requests)
            if options.clients > 1:
                pid = federation.pids[names[-1]]
                result |= _with_a_stopped_peer(predictor, pid, result["latency_ms"])
        with (
            _federation(directory, configs, batch=False) as federation,
            Predictor(federation.predict_addresses[names[0]]) as predictor,
        ):
            _wait_until_served(predictor)
            alone = _requests_per_s(predictor, options.requests)
        return result | {
            "callers": NUM_CALLERS,
            "requests_per_s": round(batched),
            "requests_per_s_without_batching": round(alone),
            "batching_gain": round(batched / alone, 3),
            "tls": False,
        }


def _write_inputs(directory: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    rng = np.random.default_rng(0)
    num_rows = NUM_TRAIN + NUM_TEST
    secret = directory / ID_SECRET
    secret.write_bytes(rng.bytes(32))
    secret.chmod(FILE_MODE)
    labels = rng.integers(0, NUM_CLASSES, num_rows)
    for name in names:
        features = rng.standard_normal((num_rows, NUM_FEATURES)).astype(np.float32)
        for table, rows in (
            ("train", np.arange(NUM_TRAIN)),
            ("test", np.arange(NUM_TRAIN, num_rows)),
        ):
            path = directory / f"{name}_{table}.npz"
            np.savez(path, id=rows, x=features[rows], y=labels[rows])
    return {
        name: {
            "federation": "bench",
            "name": name,
            "listen": "127.0.0.1:0",
            "coordinator": "127.0.0.1:1",
            "state": f"./{name}-state",
            "data": {
                "train": f"{name}_train.npz",
                "test": f"{name}_test.npz",
                "id": "id",
                "label": "y",
            },
            "id_secret_file": ID_SECRET,
            "model": {"representation": "mlp", "hidden": [WIDTH, WIDTH]},
            "threads": 1,
            "log_level": "warning",
            "serving": {"requests_per_s": 1e6, "samples_per_s": 1e8},
        }
        for name in names
    }


@contextmanager
def _federation(
    directory: Path, configs: dict[str, dict[str, Any]], *, batch: bool
) -> Iterator[LocalFederation]:
    """Start all daemons; a second federation in a directory serves what the first has trained."""
    with LocalFederation(directory, insecure=True) as federation:
        address = federation.start_coordinator(
            {
                "federation": "bench",
                "listen": "127.0.0.1:0",
                "state": "./coordinator-state",
                "clients": list(configs),
                "alignment": "hmac",
                "training": {"representation_dim": WIDTH, "batch_size": 128, "epochs": 1},
            }
        )
        federation.start_clients(
            {
                name: {
                    **config,
                    "coordinator": address,
                    "serving": {**config["serving"], "batch_requests": batch},
                }
                for name, config in configs.items()
            },
            stay=True,
        )
        yield federation


def _wait_until_served(predictor: Predictor) -> None:
    """Wait for the first model, and until all peers take part."""
    give_up_at = time.monotonic() + TIMEOUT_S
    while True:
        try:
            if predictor.predict([NUM_TRAIN], deadline=10.0).blocks.all():
                return
        except NotReady:
            pass
        if time.monotonic() > give_up_at:
            raise NotReady("the federation does not answer with all blocks")
        time.sleep(0.1)


def _latency(predictor: Predictor, num_requests: int) -> dict[str, float]:
    """Time one-sample requests and echoes of as many bytes, in turns."""
    with _echo() as echo:
        request_times: list[float] = []
        echo_times: list[float] = []
        _times(lambda i: predictor.predict([NUM_TRAIN + i]), BLOCK)
        _times(echo, BLOCK)
        for _ in range(-(-num_requests // BLOCK)):
            request_times += _times(lambda i: predictor.predict([NUM_TRAIN + i]), BLOCK)
            echo_times += _times(echo, BLOCK)
    median, echo_median = statistics.median(request_times), statistics.median(echo_times)
    return {
        "latency_ms": _ms(median),
        "latency_p99_ms": _ms(float(np.quantile(request_times, 0.99))),
        "echo_ms": _ms(echo_median),
        "echo_p99_ms": _ms(float(np.quantile(echo_times, 0.99))),
        "latency_to_echo": round(median / echo_median, 3),
    }


def _times(call: Callable[[int], object], num: int) -> list[float]:
    times = []
    for i in range(num):
        started = time.perf_counter()
        call(i)
        times.append(time.perf_counter() - started)
    return times


@contextmanager
def _echo() -> Iterator[Callable[[int], object]]:
    """Start a process that echoes, and yield a call to it."""
    command = [sys.executable, "-m", "laser_vfl.bench.echo_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().strip()
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                call: Any = channel.unary_unary("/laser_vfl.Echo/Echo")
                yield lambda i: call(ECHOED)
        finally:
            process.terminate()


def _throughput(
    predictor: Predictor, directory: Path, configs: dict[str, dict[str, Any]]
) -> dict[str, float]:
    """Score the test table through the federation, and run the same forward in this process."""
    models = [_load(directory, name) for name in configs]
    blocks = [
        torch.from_numpy(np.load(directory / f"{name}_test.npz")["x"]).float() for name in configs
    ]
    chunks = [
        range(NUM_TRAIN + start, NUM_TRAIN + start + CHUNK) for start in range(0, NUM_TEST, CHUNK)
    ]
    federated, local = [], []
    for _ in range(3):
        started = time.perf_counter()
        answers = list(predictor.predict_batches(chunks, deadline=30.0))
        federated.append(NUM_TEST / (time.perf_counter() - started))
        if not all(answer.blocks.all() for answer in answers):
            raise NotReady("some blocks were missing, so the comparison would not be fair")
        started = time.perf_counter()
        for start in range(0, NUM_TEST, CHUNK):
            parts = [
                model.represent(block[start : start + CHUNK])
                for model, block in zip(models, blocks, strict=True)
            ]
            models[0].outputs(torch.stack(parts).mean(dim=0)).softmax(dim=1)
        local.append(NUM_TEST / (time.perf_counter() - started))
    per_s, local_per_s = statistics.median(federated), statistics.median(local)
    return {
        "samples_per_s": round(per_s),
        "local_samples_per_s": round(local_per_s),
        "throughput_to_local": round(per_s / local_per_s, 3),
    }


def _load(directory: Path, name: str) -> PublishedModel:
    config = load_config(directory / f"{name}.yaml", ClientConfig)
    state = StateDirectory(config.state)
    run = state.published_run
    assert run is not None
    return load_published(config, state, run, NO_MODELS, torch.device("cpu"))


def _requests_per_s(predictor: Predictor, num_requests: int) -> float:
    """Return how many one-sample requests many callers get answered in a second, together."""
    per_caller = max(10, num_requests // 10)

    def call(caller: int) -> None:
        for i in range(per_caller):
            predictor.predict([NUM_TRAIN + caller * per_caller + i], deadline=10.0)

    rates = []
    with ThreadPoolExecutor(NUM_CALLERS) as pool:
        for _ in range(3):
            started = time.perf_counter()
            list(pool.map(call, range(NUM_CALLERS)))
            rates.append(NUM_CALLERS * per_caller / (time.perf_counter() - started))
    return statistics.median(rates)


def _with_a_stopped_peer(predictor: Predictor, peer: int, healthy_ms: float) -> dict[str, float]:
    """Stop a peer: the first request waits for it until its deadline, the next ones do not."""
    os.kill(peer, signal.SIGSTOP)
    try:
        (first,) = _times(lambda i: predictor.predict([NUM_TRAIN], DEADLINE_S), 1)
        after = statistics.median(
            _times(lambda i: predictor.predict([NUM_TRAIN + i], DEADLINE_S), BLOCK)
        )
    finally:
        os.kill(peer, signal.SIGCONT)
    return {
        "stopped_first_ms": _ms(first),
        "stopped_first_to_deadline": round(first / DEADLINE_S, 3),
        "stopped_after_ms": _ms(after),
        "stopped_after_to_healthy": round(_ms(after) / healthy_ms, 3),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
