"""How long a client computes at a step, measured on this machine within a second or two."""

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import torch

from laser_vfl.cli.plan_forecast import Compute, Federation, shrunk
from laser_vfl.cli.plan_walk import Walk, alignments_of, labelled_mask
from laser_vfl.client.block import build_learner, load_block
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import Host, num_cores, pick_device
from laser_vfl.client.exchange import Exchange
from laser_vfl.client.inbox import Kind
from laser_vfl.client.mail import Mail
from laser_vfl.client.progress import Progress
from laser_vfl.client.training import train_step
from laser_vfl.client.view import MemberView, Peer
from laser_vfl.config.loading import load_config
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import MismatchError
from laser_vfl.core.exchange import WIRE_DTYPES
from laser_vfl.core.plan import Plan, Share
from laser_vfl.core.schedule import Schedule
from laser_vfl.data import hash_to_curve, multiply, new_scalar
from laser_vfl.wire.frames import add_exchange, open_exchange
from laser_vfl.wire.overhead import blank_frame
from laser_vfl.wire.sizes import bounded
from laser_vfl.wire.tensors import TensorSpec, decode_tensor, encode_tensor

WARM_UP_STEPS, STEPS = 5, 30
MAX_STEPS_S = 3.0
WARM_UP_FRAMES, NUM_FRAMES = 10, 50
NUM_POINTS = 200
ROWS = 2_000
KEY = b"an order of samples for a benchmark"


def measure_compute(
    federation: Federation, client_config: Path | None, num_features: int, cores: int | None
) -> Compute:
    """Do some steps of the real training without anybody else, and hand frames to oneself.

    With `cores`, all clients share a machine that has so many, and wait for each other there.
    """
    if client_config is not None:
        config = load_config(client_config, ClientConfig)
        origin = f"measured here with {client_config.name}"
        step_s = asyncio.run(_measure_steps(config, federation, cores))
    else:
        origin = f"measured here with the default model and {num_features} features"
        with tempfile.TemporaryDirectory(prefix="laser-vfl-plan-") as name:
            config = _invented(Path(name), federation, num_features)
            step_s = asyncio.run(_measure_steps(config, federation, cores))
    frame_s = asyncio.run(_measure_frames(federation)) if len(federation.roster) > 1 else 0.0
    crowding = max(1.0, len(federation.roster) / cores) if cores else 1.0
    if cores:
        origin += f", {len(federation.roster)} clients on {cores} cores"
    return Compute(step_s * crowding, frame_s * crowding, origin)


def measure_multiplication() -> float:
    """Return the seconds that a thread takes to blind one point."""
    ids = [str(i) for i in range(NUM_POINTS)]
    points = hash_to_curve(ids, federation="plan", run="plan", table="plan")
    started = time.thread_time()
    multiply(points, new_scalar())
    return (time.thread_time() - started) / NUM_POINTS


def _invented(directory: Path, federation: Federation, num_features: int) -> ClientConfig:
    """Write a random table and the configuration of a client that has it."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((ROWS, num_features)).astype(np.float32)
    np.savez(directory / "x.npz", id=np.arange(ROWS), x=features, y=rng.integers(0, 2, ROWS))
    path = directory / "client.yaml"
    content = {
        "federation": "plan",
        "name": federation.labels[0],
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "./state",
        "data": {"train": "x.npz", "id": "id", "label": "y"},
        "device": "cpu",
        "threads": 1,
    }
    path.write_text(json.dumps(content))
    return load_config(path, ClientConfig)


async def _measure_steps(config: ClientConfig, federation: Federation, cores: int | None) -> float:
    """Return the mean time of a step of one client."""
    settings, roster = federation.settings, federation.roster
    if config.name not in roster:
        raise MismatchError(
            f"{config.name} is not in the roster of the coordinator",
            where=config.where("name"),
            hint=f"it has {', '.join(roster)}",
        )
    groups = shrunk(federation.groups, STEPS * settings.batch_size)
    alignments = alignments_of(groups, len(roster))
    me = roster.index(config.name)
    walk = Walk(settings, roster, labelled_mask(federation.labels, roster))
    schedule = Schedule(
        groups, seed=settings.seed, batch_size=settings.batch_size, batching=settings.batching
    )
    plans = [
        plan
        for number in range(WARM_UP_STEPS + STEPS)
        for plan in walk.plans(schedule.step(number), alignments)
        if plan.client == me
    ]
    if not plans:
        return 0.0
    block = load_block(config, KEY)
    rows = {
        g: np.resize(np.arange(len(block.train.inputs)), len(places))
        for g, places in alignments[me].rows.items()
    }
    alignment = ClientAlignment(alignments[me].groups, rows)
    device = pick_device(config.device, where=config.where("device"))
    learner = build_learner(
        config, block, settings, roster, federation.labels, device, alignment=alignment
    )
    mail = _ToOneself(federation, me)
    exchange = Exchange(learner, Host(device), mail, block.train, alignment)
    neighbours = len(roster) if cores else 1
    threads = max(1, num_cores() // neighbours) if config.threads == "auto" else config.threads
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        # A thread's own time leaves out what other processes take; several threads have no such.
        is_alone = threads == 1 and device.type == "cpu"
        clock = time.thread_time if is_alone else time.perf_counter
        return _timed(exchange, [_within(plan, len(block.train.inputs)) for plan in plans], clock)
    finally:
        torch.set_num_threads(before)


def _within(plan: Plan, num_rows: int) -> Plan:
    """Return a plan whose rows the table has."""
    return Plan(**{**vars(plan), "rows": plan.rows % num_rows})


def _timed(exchange: Exchange, plans: Sequence[Plan], clock: Callable[[], float]) -> float:
    for plan in plans[:WARM_UP_STEPS]:
        train_step(exchange, plan, 0.0)
    seconds: list[float] = []
    for plan in plans[WARM_UP_STEPS:] or plans:
        started = clock()
        train_step(exchange, plan, 0.0)
        seconds.append(clock() - started)
        if sum(seconds) > MAX_STEPS_S:
            break
    # A mean over unlike batches; what something else on the machine delays is cut off.
    usual = statistics.median(seconds)
    return statistics.mean(min(one, 2 * usual) for one in seconds)


class _ToOneself(Mail):
    """Encodes what is sent and decodes what would come; nobody is there to talk to."""

    def __init__(self, federation: Federation, me: int) -> None:
        peers = [Peer(k, name, k + 1, "127.0.0.1:1") for k, name in enumerate(federation.roster)]
        view = MemberView(
            run="0" * 32,
            generation=1,
            me=peers[me],
            peers=tuple(peer for peer in peers if peer.index != me),
            heads=federation.labels,
            next_steps=tuple((peer.index, 0) for peer in peers),
            seed=0,
        )
        settings = federation.settings
        links: Any = _Nobody()
        dtype = WIRE_DTYPES[settings.wire_precision]
        super().__init__(links, view, Progress(), dtype, settings.max_norm)

    def key_of(self, peer: int) -> bytes:
        """Return what a key looks like."""
        return bytes(32)

    def check(self) -> None:
        """Nothing ends it."""

    def _receive(
        self, kind: Kind, step: int, shares: Sequence[Share], width: int, dtype: torch.dtype
    ) -> dict[int, torch.Tensor]:
        received = {}
        for share in shares:
            rows_rd = torch.zeros((share.num_rows, width), dtype=dtype)
            message = encode_tensor(rows_rd, dtype)
            tensor = decode_tensor(message, TensorSpec((share.num_rows, width), dtype))
            received[share.peer] = self._usable(tensor) if dtype.is_floating_point else tensor
        return received


class _Nobody:
    def send(self, kind: Kind, frames: Iterable[tuple[int, bytes]]) -> None:
        """Drop it."""


async def _measure_frames(federation: Federation) -> float:
    """Return the CPU time that one end spends on a frame, through gRPC on loopback."""
    settings = federation.settings
    width = settings.exchanged_width(len(federation.roster))
    frame = blank_frame(settings.batch_size, width, settings.wire_precision)

    async def behaviour(_: Any, context: Any) -> None:
        for _ in range(WARM_UP_FRAMES + NUM_FRAMES):
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
        for number in range(WARM_UP_FRAMES + NUM_FRAMES):
            if number == WARM_UP_FRAMES:
                started = time.process_time()
            await call.write(frame)
            await call.read()
        seconds = time.process_time() - started
    await server.stop(None)
    return seconds / NUM_FRAMES / 4  # one way and back, each with two ends
