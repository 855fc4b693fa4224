"""Compare ways to exchange tensor frames between four client processes on loopback.

Each shape moves the product's own frames for the same training step, so only the transport and
the way Python drives it differ. The results are in benchmarks/README.md.

No process forks once it has imported grpc: clients are forked by multiprocessing's fork server, a
fresh interpreter that has imported torch, which takes seconds, and never this file.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import queue
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import grpc
import torch
from torch import nn

from laser_vfl.observability.tcp_counters import tcp_bytes_sent
from laser_vfl.transport.tensor_codec import TensorSpec, decode_tensor, encode_tensor
from laser_vfl.v1 import peer_pb2 as pb

SHAPES = {
    "oracle": "all clients in one process, one after another: what the ratio is taken over",
    "none": "the same compute in four processes, frames go nowhere: a limit",
    "aio-inline": "grpc.aio, a bidirectional stream per pair, training on the event loop",
    "aio-thread": "the same, training in a thread of its own: what the product does",
    "aio-executor": "the same, training through run_in_executor",
    "sync-bidi": "grpc with threads, a bidirectional stream per pair",
    "sync-uni": "grpc with threads, a stream each way",
    "aio-unary": "grpc.aio, a unary call per frame",
    "tcp": "asyncio TCP, the same frames: a limit",
}
CLIENTS, TIMEOUT_S = 4, 60
BATCH, FEATURES, WIDTH, CLASSES, TASKS = 128, 140, 128, 12, 4
SPEC = TensorSpec((BATCH, WIDTH), torch.float32)
PAYLOAD_BYTES = CLIENTS * (CLIENTS - 1) * SPEC.num_bytes * 2
REPRESENTATION, GRADIENT = pb.FRAME_KIND_REPRESENTATION, pb.FRAME_KIND_GRADIENT
BLOCK = 10  # steps; times are medians over blocks, so that a burst of other work does not count
HOST, PATH = "127.0.0.1", "/bench.Peer/Exchange"

Tensors = dict[int, torch.Tensor]  # by peer
Frames = dict[int, bytes]  # by peer
Training = Generator[Any, Any, None]  # gives kind and Frames, is sent Tensors; None at the end
Meet = Callable[[int], list[int]]  # tells the parent this client's port and learns everyone's

KEEP: list[Any] = []  # servers, calls and tasks that last until the parent ends this process


class Client:
    """One client's models and one batch: the compute of a step, cut where it has to wait."""

    def __init__(self, index: int) -> None:
        torch.manual_seed(index)
        hidden = [nn.Linear(FEATURES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
        self.model = nn.Sequential(*hidden, nn.Linear(WIDTH, WIDTH))
        self.fusion = nn.Linear(WIDTH, CLASSES)
        self.optimizer = torch.optim.Adam([*self.model.parameters(), *self.fusion.parameters()])
        self.features = torch.randn(BATCH, FEATURES)
        self.labels = torch.randint(CLASSES, (BATCH,)).repeat(TASKS)
        average_tk = nn.functional.normalize(torch.ones(TASKS, CLIENTS).tril(), p=1)
        self.average_tbk = average_tk.roll(index, 1)[:, None].repeat(1, BATCH, 1)

    def forward(self) -> Any:
        self.optimizer.zero_grad()
        self.output = self.model(self.features)
        return self.output.detach()

    def fuse(self, representations: list[torch.Tensor]) -> Any:
        """Return the gradient of the loss by each client's representation, in roster order."""
        stack_kbd = torch.stack(representations).requires_grad_()
        mixed_tbd = torch.einsum("tbk,kbd->tbd", self.average_tbk, stack_kbd)
        logits = self.fusion(mixed_tbd.reshape(TASKS * BATCH, WIDTH))
        loss: Any = nn.functional.cross_entropy(logits, self.labels)
        loss.backward()
        return stack_kbd.grad

    def backward(self, gradients: list[torch.Tensor]) -> None:
        self.output.backward(sum(gradients))
        self.optimizer.step()


def others(me: int) -> list[int]:
    return [k for k in range(CLIENTS) if k != me]


def encode(step: int, kind: Any, me: int, tensor: torch.Tensor) -> bytes:
    frame = pb.Frame(run="0" * 32, generation=1, step=step, kind=kind, sender=str(me))
    encode_tensor(tensor, SPEC.dtype, frame.tensor)
    return frame.SerializeToString()


def decode(frames: list[pb.Frame]) -> Tensors:
    return {int(frame.sender): decode_tensor(frame.tensor, SPEC) for frame in frames}


def train(me: int, steps: Iterable[int]) -> Training:
    """Yield a kind and frames to send, be sent the peers' tensors; None at the end."""
    client = Client(me)
    for step in steps:
        own = client.forward()
        got = yield REPRESENTATION, dict.fromkeys(others(me), encode(step, REPRESENTATION, me, own))
        gradients = client.fuse([got.get(k, own) for k in range(CLIENTS)])
        got = yield GRADIENT, {k: encode(step, GRADIENT, me, gradients[k]) for k in others(me)}
        client.backward([got.get(k, gradients[me]) for k in range(CLIENTS)])
    yield None


def train_oracle(steps: Iterable[int]) -> None:
    """Do the work of all clients in this process."""
    clients = [Client(k) for k in range(CLIENTS)]
    for _ in steps:
        representations = [client.forward() for client in clients]
        gradients = [client.fuse(representations) for client in clients]
        for k, client in enumerate(clients):
            client.backward([gradient[k] for gradient in gradients])


def measured(args: argparse.Namespace, report: Callable[[Any], None]) -> Iterator[int]:
    """Yield the steps, the warm-up first; then report what one of the others cost."""
    clocks, cpu_s, sent = list[float](), 0.0, 0
    for step in range(-args.warmup, args.steps):
        if step == 0:
            cpu_s, sent = time.process_time(), tcp_bytes_sent() or 0
        if step >= 0 and step % BLOCK == 0:
            clocks.append(time.perf_counter())
        yield step + args.warmup
    clocks.append(time.perf_counter())
    step_ms = median(b - a for a, b in itertools.pairwise(clocks)) / BLOCK * 1e3
    cpu_ms = (time.process_time() - cpu_s) / args.steps * 1e3
    wire_bytes = ((tcp_bytes_sent() or 0) - sent) / args.steps
    report({"step_ms": step_ms, "cpu_ms": cpu_ms, "wire_bytes": wire_bytes})


class Mail:
    """What is to be sent to each peer, and what came: handed over as a complete set of a kind.

    No peer sends the next frame of a kind before it has what follows from the complete set here.
    """

    def __init__(self, me: int, outbox: Any, inbox: Any) -> None:
        self.outbox = {peer: outbox() for peer in others(me)}
        self.inbox: dict[int, Any] = {REPRESENTATION: inbox(), GRADIENT: inbox()}
        self.frames: dict[int, list[pb.Frame]] = {REPRESENTATION: [], GRADIENT: []}
        self.lock = threading.Lock()

    def post(self, frames: Frames) -> None:
        for peer, frame in frames.items():
            self.outbox[peer].put_nowait(frame)

    def put(self, data: bytes) -> None:
        frame = pb.Frame.FromString(data)
        with self.lock:
            frames = self.frames[frame.kind]
            frames.append(frame)
            if len(frames) == CLIENTS - 1:
                self.frames[frame.kind] = []
                self.inbox[frame.kind].put_nowait(frames)

    async def pump(self, peer: int, read: Any, write: Any) -> None:
        async def write_all() -> None:
            while True:
                await write(await self.outbox[peer].get())

        KEEP.append(asyncio.create_task(write_all()))
        while True:
            self.put(await read())


def listen(server: Any, handler: Any) -> int:
    service = grpc.method_handlers_generic_handler("bench.Peer", {"Exchange": handler})
    server.add_generic_rpc_handlers((service,))
    KEEP.append(server)
    return int(server.add_insecure_port(f"{HOST}:0"))


async def open_channels(handler: Any, me: int, meet: Meet) -> dict[int, Any]:
    """Serve with grpc.aio and return a channel to each peer."""
    server = grpc.aio.server()
    port = listen(server, handler)
    await server.start()
    ports = meet(port)
    channels = {k: grpc.aio.insecure_channel(f"{HOST}:{ports[k]}") for k in others(me)}
    KEEP.append(channels)
    return channels


async def connect_streams(me: int, meet: Meet, mail: Mail) -> None:
    """grpc.aio, one stream per pair; the lower index dials."""

    async def serve(_: Any, context: Any) -> None:
        peer = int(dict(context.invocation_metadata())["sender"])
        await mail.pump(peer, context.read, context.write)

    channels = await open_channels(grpc.stream_stream_rpc_method_handler(serve), me, meet)
    for peer in range(me + 1, CLIENTS):
        call = channels[peer].stream_stream(PATH)(metadata=(("sender", str(me)),))
        KEEP.append(asyncio.create_task(mail.pump(peer, call.read, call.write)))


async def connect_unary(me: int, meet: Meet, mail: Mail) -> None:
    """grpc.aio, one call per frame; nothing waits for the reply."""
    pending: set[Any] = set()

    async def serve(frame: bytes, _: Any) -> bytes:
        mail.put(frame)
        return b""

    async def push_all(peer: int, method: Any) -> None:
        while True:
            call = method(await mail.outbox[peer].get())
            pending.add(call)
            call.add_done_callback(pending.discard)

    channels = await open_channels(grpc.unary_unary_rpc_method_handler(serve), me, meet)
    for peer, channel in channels.items():
        KEEP.append(asyncio.create_task(push_all(peer, channel.unary_unary(PATH))))


async def connect_tcp(me: int, meet: Meet, mail: Mail) -> None:
    """One TCP connection per pair, each frame after its length; the lower index dials."""

    async def serve(reader: Any, writer: Any, peer: int | None = None) -> None:
        async def read() -> Any:
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))

        async def write(frame: bytes) -> None:
            writer.write(len(frame).to_bytes(4))
            writer.write(frame)

        caller = (await reader.readexactly(1))[0] if peer is None else peer
        await mail.pump(caller, read, write)

    server = await asyncio.start_server(serve, HOST, 0, limit=1 << 20)
    ports = meet(server.sockets[0].getsockname()[1])
    for peer in range(me + 1, CLIENTS):
        reader, writer = await asyncio.open_connection(HOST, ports[peer], limit=1 << 20)
        writer.write(bytes([me]))
        KEEP.extend([server, asyncio.create_task(serve(reader, writer, peer))])


def connect_threads(me: int, meet: Meet, mail: Mail, *, both_ways: bool) -> None:
    """Sync grpc: a bidirectional stream per pair, or one stream each way."""

    def outgoing(peer: int) -> Iterator[bytes]:
        while True:
            yield mail.outbox[peer].get()

    def read_all(frames: Iterable[bytes], _: Any = None) -> bytes:
        for frame in frames:
            mail.put(frame)
        return b""

    def serve_both(frames: Iterator[bytes], context: Any) -> Iterator[bytes]:
        threading.Thread(target=read_all, args=(frames,), daemon=True).start()
        yield from outgoing(int(dict(context.invocation_metadata())["sender"]))

    stream, one_way = grpc.stream_stream_rpc_method_handler, grpc.stream_unary_rpc_method_handler
    server = grpc.server(ThreadPoolExecutor(CLIENTS))
    port = listen(server, stream(serve_both) if both_ways else one_way(read_all))
    server.start()
    ports = meet(port)
    for peer in range(me + 1, CLIENTS) if both_ways else others(me):
        channel: Any = grpc.insecure_channel(f"{HOST}:{ports[peer]}")
        if both_ways:
            call = channel.stream_stream(PATH)(outgoing(peer), metadata=(("sender", str(me)),))
            threading.Thread(target=read_all, args=(call,), daemon=True).start()
        else:
            call = channel.stream_unary(PATH).future(outgoing(peer))
        KEEP.extend([channel, call])


def run_client(shape: str, me: int, args: argparse.Namespace, parent: Connection) -> None:
    """Meet the others, train and tell the parent the result."""
    signal.alarm(TIMEOUT_S)  # ends this process, whatever becomes of the parent
    torch.set_num_threads(1)

    def meet(port: int) -> list[int]:
        parent.send(port)
        return list(parent.recv())

    steps = measured(args, parent.send)
    training = train(me, steps)
    if shape == "oracle":
        meet(0)
        train_oracle(steps)
    elif shape == "none":
        meet(0)
        got, zeros = None, {peer: torch.zeros(SPEC.shape) for peer in others(me)}
        while training.send(got):
            got = zeros
    elif shape == "aio-thread":
        mail, loop = Mail(me, asyncio.Queue, queue.SimpleQueue), asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(connect_streams(me, meet, mail), loop).result()
        run_in_thread(training, mail, lambda frames: loop.call_soon_threadsafe(mail.post, frames))
    elif shape.startswith("sync"):
        mail = Mail(me, queue.SimpleQueue, queue.SimpleQueue)
        connect_threads(me, meet, mail, both_ways=shape == "sync-bidi")
        run_in_thread(training, mail, mail.post)
    else:
        connect = {"aio-unary": connect_unary, "tcp": connect_tcp}.get(shape, connect_streams)
        pool = ThreadPoolExecutor(1) if shape == "aio-executor" else None
        mail = Mail(me, asyncio.Queue, asyncio.Queue)
        asyncio.run(run_on_loop(training, mail, connect(me, meet, mail), pool))
    signal.pause()  # peers may still wait for the last frames; the parent ends all


def run_in_thread(training: Training, mail: Mail, post: Callable[[Frames], Any]) -> None:
    """Train in this thread, which blocks while it waits."""
    got = None
    while sends := training.send(got):
        kind, frames = sends
        post(frames)
        got = decode(mail.inbox[kind].get())


async def run_on_loop(training: Training, mail: Mail, connected: Any, pool: Any) -> None:
    """Let the event loop drive the training, computing on it or in the pool."""
    await connected
    loop, got = asyncio.get_running_loop(), None
    while sends := (
        await loop.run_in_executor(pool, training.send, got) if pool else training.send(got)
    ):
        kind, frames = sends
        mail.post(frames)
        got = decode(await mail.inbox[kind].get())
    await asyncio.Event().wait()  # the last frames are still to be written


def measure(shape: str, args: argparse.Namespace) -> dict[str, float]:
    """Run one federation (or the oracle) in fresh processes: CPU and bytes of all, slowest step."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo"])
    pairs = [context.Pipe() for _ in range(1 if shape == "oracle" else CLIENTS)]
    pipes, processes = [ours for ours, _ in pairs], list[Any]()
    try:
        for k, (_, theirs) in enumerate(pairs):
            process = context.Process(target=run_client, args=(shape, k, args, theirs), daemon=True)
            process.start()
            theirs.close()  # so that a client that ends early is noticed
            processes.append(process)
        ports = [pipe.recv() for pipe in pipes]
        for pipe in pipes:
            pipe.send(ports)
        results = [pipe.recv() for pipe in pipes]
    except (EOFError, OSError):
        sys.exit(f"{shape}: a client ended early")
    finally:
        for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first: nobody sees a peer die
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
    total = {key: sum(result[key] for result in results) for key in results[0]}
    return total | {"step_ms": max(result["step_ms"] for result in results)}


def summarise(shape: str, runs: list[dict[str, float]], oracle_ms: float) -> dict[str, Any]:
    """Return a row of the table: medians over the rounds."""
    row = {key: median(run[key] for run in runs) for key in runs[0]}
    times = [run["step_ms"] for run in runs]
    row |= {"step_ms_min": min(times), "step_ms_max": max(times)}
    row |= {"ratio": row["step_ms"] / oracle_ms, "wire_ratio": row["wire_bytes"] / PAYLOAD_BYTES}
    return {"shape": shape} | {key: round(value, 4) for key, value in row.items()}


def main() -> None:
    shapes = "; ".join(f"{name}: {about}" for name, about in SHAPES.items())
    parser = argparse.ArgumentParser(description=f"Time ways to exchange frames. {shapes}.")
    parser.add_argument("--steps", type=int, default=300, help="steps measured in a run")
    parser.add_argument("--warmup", type=int, default=50, help="steps before them")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; medians are printed")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--format", choices=("text", "json"), default="text")
    args = parser.parse_args()
    if args.steps < BLOCK or args.steps % BLOCK:
        parser.error(f"steps come in blocks of {BLOCK}")
    os.environ |= {"OMP_NUM_THREADS": "1", "GRPC_VERBOSITY": "ERROR"}
    compared = [shape for shape in args.shapes if shape != "oracle"]
    runs: dict[str, list[dict[str, float]]] = {shape: [] for shape in ["oracle", *compared]}
    order = random.Random(0)
    for number in range(args.repeats):  # interleaved, so that a slow minute hits no shape alone
        for shape in ["oracle", *order.sample(compared, len(compared))]:
            print(f"round {number + 1}/{args.repeats}: {shape}", file=sys.stderr, flush=True)
            runs[shape].append(measure(shape, args))
    oracle_ms = median(run["step_ms"] for run in runs["oracle"])
    rows = [summarise(shape, results, oracle_ms) for shape, results in runs.items()]
    result = {"payload_bytes_per_step": PAYLOAD_BYTES, "rows": rows}
    print(json.dumps(result, indent=2) if args.format == "json" else "\n".join(map(str, rows)))


if __name__ == "__main__":
    main()
