"""The computing time of a training step, measured on this machine in a second or two."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import torch

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import num_cores
from laser_vfl.client.training.training_step import StepContext, train_step
from laser_vfl.config.loading import load_config
from laser_vfl.core.schedule.schedule import Schedule
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.data import hash_to_curve, multiply, new_scalar
from laser_vfl.planning.forecast import Compute, PlannedFederation, shrunk
from laser_vfl.planning.offline_training import offline_step_context
from laser_vfl.transport.frame_overhead import blank_frame
from laser_vfl.transport.frames import add_exchange, open_exchange
from laser_vfl.transport.message_limits import bounded

WARM_UP_STEPS, STEPS = 5, 30
MAX_STEPS_S = 3.0
WARM_UP_FRAMES, NUM_FRAMES = 5, 50
MAX_FRAMES_BYTES = 100_000_000
NUM_POINTS = 200
ROWS = 2_000


def measure_compute(
    federation: PlannedFederation, config: ClientConfig | None, num_features: int, cores: int | None
) -> Compute:
    """Time some real training steps without peers, and frames sent over loopback.

    With `cores`, all clients share one machine with so many, and wait for each other there.
    """
    if config is not None:
        origin = f"measured here with the model and data of {config.name}"
        step_s = asyncio.run(_measure_steps(config, federation, cores))
    else:
        origin = f"measured here with the default model and {num_features} features"
        with tempfile.TemporaryDirectory(prefix="laser-vfl-plan-") as name:
            config = write_random_client(Path(name), federation.labels[0], num_features)
            step_s = asyncio.run(_measure_steps(config, federation, cores))
    num_clients = len(federation.roster)
    frame_s = asyncio.run(_measure_frames(federation)) if num_clients > 1 else 0.0
    crowding = max(1.0, num_clients / cores) if cores else 1.0
    if cores:
        origin += f", {num_clients} clients on {cores} cores"
    return Compute(step_s * crowding, frame_s * crowding, origin)


def measure_blinding() -> tuple[float, float]:
    """Return the seconds in which a thread brings an id to the curve, and multiplies a point."""
    ids = [str(i) for i in range(NUM_POINTS)]
    started = time.thread_time()
    points = hash_to_curve(ids, federation="plan", run="plan", table="plan")
    hashed = time.thread_time()
    multiply(points, new_scalar())
    return (hashed - started) / NUM_POINTS, (time.thread_time() - hashed) / NUM_POINTS


def write_random_client(directory: Path, name: str, num_features: int) -> ClientConfig:
    """Write a random table and a client's configuration for it."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((ROWS, num_features)).astype(np.float32)
    np.savez(directory / "x.npz", id=np.arange(ROWS), x=features, y=rng.integers(0, 2, ROWS))
    content = {
        "federation": "plan",
        "name": name,
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "./state",
        "data": {"train": "x.npz", "id": "id", "label": "y"},
        "device": "cpu",
        "threads": 1,
    }
    path = directory / "client.yaml"
    path.write_text(json.dumps(content))
    return load_config(path, ClientConfig)


async def _measure_steps(
    config: ClientConfig, federation: PlannedFederation, cores: int | None
) -> float:
    """Return the mean time of a step of one client."""
    settings = federation.settings
    groups = shrunk(federation.groups, (WARM_UP_STEPS + STEPS) * settings.batch_size)
    context, _ = offline_step_context(config, federation, groups)
    learner = context.learner
    schedule = Schedule(
        groups, seed=settings.seed, batch_size=settings.batch_size, batching=settings.batching
    )
    steps = (schedule.step(number) for number in range(WARM_UP_STEPS + STEPS))
    plans = [learner.plan(step, context.alignment, learner.context.everyone) for step in steps]
    done = [plan for plan in plans if plan is not None]
    neighbours = len(federation.roster) if cores else 1
    wanted = max(1, num_cores() // neighbours) if config.threads == "auto" else config.threads
    # Threads that fight with something else here for cores are ruinous, and say nothing of a run.
    choices = {1, wanted} if config.threads == "auto" else {wanted}
    return min(_timed(context, done, threads) for threads in choices)


def _timed(context: StepContext, plans: Sequence[Plan], threads: int) -> float:
    # A thread's own time leaves out what other processes take; several threads have no such.
    is_alone = threads == 1 and context.learner.device.type == "cpu"
    clock = time.thread_time if is_alone else time.perf_counter
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return _mean_step(context, plans, clock)
    finally:
        torch.set_num_threads(before)


def _mean_step(context: StepContext, plans: Sequence[Plan], clock: Callable[[], float]) -> float:
    for plan in plans[:WARM_UP_STEPS]:
        train_step(context, plan, 0.0)
    seconds: list[float] = []
    for plan in plans[WARM_UP_STEPS:]:
        started = clock()
        train_step(context, plan, 0.0)
        seconds.append(clock() - started)
        if sum(seconds) > MAX_STEPS_S:
            break
    if not seconds:
        return 0.0
    # A mean, because batches differ; what something else on the machine delays is cut off.
    usual = statistics.median(seconds)
    return statistics.mean(min(one, 2 * usual) for one in seconds)


async def _measure_frames(federation: PlannedFederation) -> float:
    """Return the CPU time that one end spends on a frame, through gRPC on loopback."""
    settings = federation.settings
    width = settings.exchanged_width(len(federation.roster))
    frame = blank_frame(settings.batch_size, width, settings.wire_precision)
    num_frames = max(3, min(NUM_FRAMES, MAX_FRAMES_BYTES // len(frame)))

    async def behaviour(_: Any, context: Any) -> None:
        for _ in range(WARM_UP_FRAMES + num_frames):
            await context.read()
            await context.write(frame)

    options = bounded(receive=len(frame), send=len(frame))
    server = grpc.aio.server(options=options)
    add_exchange(server, behaviour)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = open_exchange(channel)
        started = 0.0
        for number in range(WARM_UP_FRAMES + num_frames):
            if number == WARM_UP_FRAMES:
                started = time.process_time()
            await call.write(frame)
            await call.read()
        seconds = time.process_time() - started
    await server.stop(None)
    return seconds / num_frames / 4  # one way and back, each with two ends
