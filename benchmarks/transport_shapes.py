"""Compare ways to exchange tensor frames between K client processes on loopback.

Each shape moves the same protobuf frames for the same training step, so only the transport and
the way Python drives it differ. `python benchmarks/transport_shapes.py --help` lists the rest.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import queue
import random
import resource
import signal
import socket
import statistics
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import IO, Any

CLIENTS = 4
BATCH, FEATURES, WIDTH, CLASSES, TASKS = 128, 140, 128, 12, 4
REPRESENTATION, GRADIENT = 1, 2
RUN = "0123456789abcdef0123456789abcdef"
SERVICE = "laser_vfl.bench.Peer"
PAYLOAD_BYTES = CLIENTS * (CLIENTS - 1) * BATCH * WIDTH * 4 * 2


# --- What is compared --------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """One row of the table: a shape and the knobs turned on it."""

    shape: str
    about: str
    codec: str = "once"
    read: str = "task"
    write: str = "queue"
    options: dict[str, int] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    switch_interval: float = 0.0
    collector: str = "on"
    uvloop: bool = False


SHAPES = {
    "none": Variant("none", "no transport: the same compute in four processes, frames go nowhere"),
    "aio-inline": Variant("inline", "a: aio, one bidi stream a pair, compute on the loop"),
    "aio-thread": Variant("thread", "b: same, compute in a thread, loop in another"),
    "aio-thread-switch": Variant(
        "thread", "b: same, sys.setswitchinterval(5e-4)", switch_interval=5e-4
    ),
    "aio-executor": Variant("executor", "b2: same, compute through run_in_executor"),
    "sync-bidi": Variant("sync-bidi", "c: threads, one bidi stream a pair"),
    "sync-uni": Variant("sync-uni", "c2: threads, one stream each way"),
    "aio-unary": Variant("unary", "d: aio, one unary call a frame"),
    "tcp": Variant("tcp", "e: asyncio TCP, same frames: the limit, not to be shipped"),
}
WINDOW = {"grpc.http2.lookahead_bytes": 1 << 20}
FRAME = {"grpc.http2.max_frame_size": 1 << 17}
KNOBS = {
    "codec-message": Variant("inline", "message objects, grpc serialises each", codec="message"),
    "codec-packed": Variant("inline", "frame packed and unpacked by hand", codec="packed"),
    "read-direct": Variant("inline", "the trainer awaits stream.read() itself", read="direct"),
    "write-inline": Variant("inline", "the trainer awaits stream.write() itself", write="inline"),
    "write-gather": Variant("inline", "the trainer gathers three writes", write="gather"),
    "window-1m": Variant("inline", "lookahead_bytes 1 MiB", options=WINDOW),
    "frame-128k": Variant("inline", "max_frame_size 128 KiB", options=FRAME),
    "no-bdp": Variant("inline", "bdp_probe 0", options={"grpc.http2.bdp_probe": 0}),
    "window-no-bdp": Variant(
        "inline",
        "lookahead_bytes 1 MiB, bdp_probe 0",
        options=WINDOW | {"grpc.http2.bdp_probe": 0},
    ),
    "window-frame-no-bdp": Variant(
        "inline",
        "lookahead_bytes 1 MiB, max_frame_size 128 KiB, bdp_probe 0",
        options=WINDOW | FRAME | {"grpc.http2.bdp_probe": 0},
    ),
    "read-chunk": Variant(
        "inline",
        "tcp_read_chunk_size 256 KiB",
        options={
            "grpc.experimental.tcp_read_chunk_size": 1 << 18,
            "grpc.experimental.tcp_min_read_chunk_size": 1 << 17,
        },
    ),
    "no-message-limit": Variant(
        "inline", "max_receive_message_length -1", options={"grpc.max_receive_message_length": -1}
    ),
    "poll": Variant("inline", "GRPC_POLL_STRATEGY=poll", env={"GRPC_POLL_STRATEGY": "poll"}),
    "gc-freeze": Variant("inline", "gc.freeze() after the set-up", collector="freeze"),
    "gc-off": Variant("inline", "gc.disable()", collector="off"),
    "uvloop": Variant("inline", "uvloop (must be installed)", uvloop=True),
}
for _flag in (
    "event_engine_callback_cq",
    "event_engine_client,event_engine_listener",
    "-event_engine_client,-event_engine_listener",
    "tcp_frame_size_tuning",
    "tcp_rcv_lowat",
    "free_large_allocator",
    "pollset_alternative",
):
    KNOBS[f"exp:{_flag}"] = Variant(
        "inline", f"GRPC_EXPERIMENTS={_flag}", env={"GRPC_EXPERIMENTS": _flag}
    )
OLD_POLLER = {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}
COMBINED = {
    "thread-packed": Variant("thread", "b, packed", codec="packed"),
    "thread-packed-old-poller": Variant(
        "thread", "b, packed, no event engine", codec="packed", env=OLD_POLLER
    ),
    "thread-packed-old-poller-window": Variant(
        "thread", "the same, wide windows", codec="packed", env=OLD_POLLER, options=WINDOW | FRAME
    ),
    "inline-packed-old-poller": Variant(
        "inline", "a, packed, no event engine", codec="packed", env=OLD_POLLER
    ),
    "sync-uni-old-poller": Variant("sync-uni", "c2, no event engine", env=OLD_POLLER),
}
VARIANTS = SHAPES | KNOBS | COMBINED


# --- The work ----------------------------------------------------------------------------------


class Client:
    """One client's models and one batch: the compute of a step, cut where it has to wait."""

    def __init__(self, index: int) -> None:
        import torch

        self.torch, self.index = torch, index
        torch.manual_seed(index)
        sizes = [FEATURES, WIDTH, WIDTH, WIDTH]
        layers: list[Any] = []
        for n, m in itertools.pairwise(sizes):
            layers += [torch.nn.Linear(n, m), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*layers[:-1])
        self.fusion = torch.nn.Linear(WIDTH, CLASSES)
        parameters = [*self.model.parameters(), *self.fusion.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3)
        self.features = torch.randn(BATCH, FEATURES)
        self.labels = torch.randint(CLASSES, (BATCH,)).repeat(TASKS)
        average = torch.zeros(TASKS, BATCH, CLIENTS)
        for task in range(TASKS):
            members = [(index + j) % CLIENTS for j in range(task + 1)]
            average[task, :, members] = 1 / (task + 1)
        self.average = average

    def forward(self) -> Any:
        """The representation of the batch, cut from the graph."""
        self.optimizer.zero_grad()
        self.output = self.model(self.features)
        return self.output.detach()

    def fuse(self, representations: list[Any]) -> Any:
        """The gradient of the loss by each client's representation, in roster order."""
        torch = self.torch
        stack = torch.stack(representations).requires_grad_()
        mixed = torch.einsum("tbk,kbd->tbd", self.average, stack).reshape(TASKS * BATCH, WIDTH)
        torch.nn.functional.cross_entropy(self.fusion(mixed), self.labels).backward()
        return stack.grad

    def backward(self, gradients: list[Any]) -> None:
        """Backward through the representation model, and the optimiser's step."""
        total = gradients[0]
        for gradient in gradients[1:]:
            total = total + gradient
        self.output.backward(total)
        self.optimizer.step()


def oracle(steps: int, warmup: int) -> dict[str, float]:
    """The same work for all clients in this process, one after another."""
    clients = [Client(k) for k in range(CLIENTS)]
    start, clocks = Snapshot(), list[float]()
    for step in range(steps + warmup):
        if step == warmup:
            start, clocks = Snapshot(), []
        representations = [client.forward() for client in clients]
        gradients = [client.fuse(representations) for client in clients]
        for k, client in enumerate(clients):
            client.backward([gradient[k] for gradient in gradients])
        clocks.append(time.perf_counter())
    return start.until(Snapshot(), clocks)


class Snapshot:
    """Clock, CPU time and received TCP payload of this process at one moment."""

    def __init__(self) -> None:
        self.received = self._received()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu = usage.ru_utime + usage.ru_stime
        self.switches = usage.ru_nvcsw + usage.ru_nivcsw
        self.clock = time.perf_counter()

    @staticmethod
    def _received() -> int:
        total = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                sock = socket.socket(fileno=int(name))
            except OSError:
                continue  # not a socket
            try:
                info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 136)
            except OSError:
                info = b""
            finally:
                sock.detach()
            if len(info) >= 136:
                total += struct.unpack_from("=Q", info, 128)[0]  # tcpi_bytes_received
        return total

    def until(self, end: Snapshot, clocks: list[float]) -> dict[str, float]:
        """What a step cost since then; `clocks` are the ends of the steps.

        The time is the median over blocks of ten steps, so that a burst of other work on the
        machine does not count; everything else is the mean.
        """
        steps, every = len(clocks), 10
        marks = [self.clock, *clocks][::every]
        blocks = [(b - a) / every for a, b in itertools.pairwise(marks)]
        return {
            "step_ms": statistics.median(blocks) * 1e3,
            "mean_ms": (end.clock - self.clock) * 1e3 / steps,
            "cpu_ms": (end.cpu - self.cpu) * 1e3 / steps,
            "switches": (end.switches - self.switches) / steps,
            "wire_bytes": (end.received - self.received) / steps,
        }


# --- Frames ------------------------------------------------------------------------------------


def _frame_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="bench.proto", package="laser_vfl.bench", syntax="proto3"
    )
    types = descriptor_pb2.FieldDescriptorProto

    def message(name: str, *fields: tuple[str, int, int]) -> None:
        described = file.message_type.add(name=name)
        for number, (field_name, kind, label) in enumerate(fields, start=1):
            item = described.field.add(name=field_name, number=number, type=kind, label=label)
            if kind == types.TYPE_MESSAGE:
                item.type_name = ".laser_vfl.bench.Tensor"

    one, many = types.LABEL_OPTIONAL, types.LABEL_REPEATED
    message(
        "Tensor",
        ("dtype", types.TYPE_INT32, one),
        ("shape", types.TYPE_INT64, many),
        ("data", types.TYPE_BYTES, one),
    )
    message(
        "Frame",
        ("run", types.TYPE_STRING, one),
        ("generation", types.TYPE_INT64, one),
        ("step", types.TYPE_INT64, one),
        ("kind", types.TYPE_INT32, one),
        ("sender", types.TYPE_INT32, one),
        ("tensor", types.TYPE_MESSAGE, one),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("laser_vfl.bench.Frame"))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Codec:
    """Tensors to what the transport carries, and back.

    message: protobuf objects, which grpc serialises at each write.
    once: protobuf serialised here, so that a representation for three peers is serialised once.
    packed: the same bytes, with the data spliced in and out by hand.
    """

    def __init__(self, name: str, sender: int) -> None:
        import torch

        self.frombuffer, self.dtype = torch.frombuffer, torch.float32
        self.name, self.sender, self.Frame = name, sender, _frame_class()
        self.serializer = self.Frame.SerializeToString if name == "message" else None
        self.deserializer = self.Frame.FromString if name == "message" else None
        size = BATCH * WIDTH * 4
        tensor = b"\x08\x01\x12\x04" + _varint(BATCH) + _varint(WIDTH) + b"\x1a" + _varint(size)
        self.tensor = b"\x32" + _varint(len(tensor) + size) + tensor

    def encode(self, step: int, kind: int, tensor: Any) -> Any:
        if self.name == "packed":
            head = self.Frame(run=RUN, generation=1, step=step, kind=kind, sender=self.sender)
            return b"".join((head.SerializeToString(), self.tensor, tensor.numpy().data))
        frame = self.Frame(run=RUN, generation=1, step=step, kind=kind, sender=self.sender)
        frame.tensor.dtype = 1
        frame.tensor.shape.extend(tensor.shape)
        frame.tensor.data = tensor.numpy().tobytes()
        return frame.SerializeToString() if self.name == "once" else frame

    def decode(self, frame: Any) -> tuple[int, int, int, Any]:
        if self.name == "packed":
            cut = len(frame) - BATCH * WIDTH * 4
            head = self.Frame.FromString(frame[: cut - len(self.tensor)])
            data = self.frombuffer(memoryview(frame)[cut:], dtype=self.dtype).view(BATCH, WIDTH)
            return head.step, head.kind, head.sender, data
        message = self.Frame.FromString(frame) if self.name == "once" else frame
        data = self.frombuffer(message.tensor.data, dtype=self.dtype).view(*message.tensor.shape)
        return message.step, message.kind, message.sender, data


# --- The step, free of any transport -----------------------------------------------------------

Key = tuple[int, int]  # step, kind
Sends = tuple[Key, dict[int, Any]]  # what to wait for from everyone, and a frame for each peer
Phases = Generator[Sends, dict[int, Any], None]


def training(client: Client, codec: Codec, warmup: int, steps: int) -> Phases:
    """Yield the frames to send, be sent the tensors of the peers; two of each a step."""
    me, peers = client.index, [k for k in range(CLIENTS) if k != client.index]
    start, clocks = Snapshot(), list[float]()
    for step in range(warmup + steps):
        if step == warmup:
            start, clocks = Snapshot(), []
        own = client.forward()
        if codec.name == "message":
            frames = {peer: codec.encode(step, REPRESENTATION, own) for peer in peers}
        else:
            frames = dict.fromkeys(peers, codec.encode(step, REPRESENTATION, own))
        got = yield (step, REPRESENTATION), frames
        gradient = client.fuse([own if k == me else got[k] for k in range(CLIENTS)])
        frames = {peer: codec.encode(step, GRADIENT, gradient[peer]) for peer in peers}
        got = yield (step, GRADIENT), frames
        client.backward([gradient[me] if k == me else got[k] for k in range(CLIENTS)])
        clocks.append(time.perf_counter())
    report(start.until(Snapshot(), clocks))


class Inbox:
    """Frames by (step, kind) until all peers' are there, then one wake-up."""

    def __init__(self, codec: Codec, wake: Callable[[Key], None]) -> None:
        self.decode, self.wake = codec.decode, wake
        self.slots: dict[Key, dict[int, Any]] = {}

    def put(self, frame: Any) -> None:
        step, kind, sender, tensor = self.decode(frame)
        slot = self.slots.setdefault((step, kind), {})
        slot[sender] = tensor
        if len(slot) == CLIENTS - 1:
            self.wake((step, kind))


class LoopInbox(Inbox):
    """Put and awaited on one event loop."""

    def __init__(self, codec: Codec) -> None:
        super().__init__(codec, self._wake)
        self.waiting: tuple[Key, asyncio.Future[None]] | None = None

    def _wake(self, key: Key) -> None:
        if self.waiting is not None and self.waiting[0] == key:
            self.waiting[1].set_result(None)
            self.waiting = None

    async def get(self, key: Key) -> dict[int, Any]:
        if len(self.slots.get(key, ())) < CLIENTS - 1:
            ready = asyncio.get_running_loop().create_future()
            self.waiting = key, ready
            await ready
        return self.slots.pop(key)


class ThreadInbox(Inbox):
    """Put by other threads, awaited by the training thread."""

    def __init__(self, codec: Codec) -> None:
        self.complete: queue.SimpleQueue[Key] = queue.SimpleQueue()
        self.early: set[Key] = set()
        super().__init__(codec, self.complete.put)
        self.lock = threading.Lock()

    def put(self, frame: Any) -> None:
        with self.lock:
            super().put(frame)

    def get(self, key: Key) -> dict[int, Any]:
        while key not in self.early:
            self.early.add(self.complete.get())
        self.early.remove(key)
        return self.slots.pop(key)


# --- Rendezvous with the parent ----------------------------------------------------------------


def exchange_ports(port: int) -> list[int]:
    """Tell the parent this client's port, and learn everyone's."""
    print(json.dumps({"port": port}), flush=True)
    ports: list[int] = json.loads(sys.stdin.readline())
    return ports


def report(result: dict[str, float]) -> None:
    """Tell the parent the outcome."""
    print(json.dumps(result), flush=True)


def address(port: int) -> str:
    return f"127.0.0.1:{port}"


# --- Shapes on asyncio -------------------------------------------------------------------------


class Link:
    """One peer on the loop: frames are queued, one write is pending at a time."""

    def __init__(self, read: Any, write: Any) -> None:
        self.read, self.write = read, write
        self.queue: asyncio.Queue[Any] = asyncio.Queue()
        self.post = self.queue.put_nowait

    async def write_all(self) -> None:
        while True:
            await self.write(await self.queue.get())

    async def read_all(self, put: Callable[[Any], None]) -> None:
        while True:
            put(await self.read())


async def connect_streams(me: int, codec: Codec, variant: Variant) -> tuple[dict[int, Link], Any]:
    """One bidirectional grpc.aio stream for each pair; the lower index dials."""
    import grpc

    links: dict[int, Link] = {}
    complete = asyncio.Event()

    def add(peer: int, link: Link) -> None:
        links[peer] = link
        if len(links) == CLIENTS - 1:
            complete.set()

    async def serve(_: Any, context: Any) -> None:
        await context.send_initial_metadata(())
        peer = int(dict(context.invocation_metadata())["sender"])
        add(peer, Link(context.read, context.write))
        await asyncio.Event().wait()

    options = [*variant.options.items(), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=options)
    handler = grpc.stream_stream_rpc_method_handler(serve, codec.deserializer, codec.serializer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Exchange": handler}),)
    )
    port = server.add_insecure_port(address(0))
    await server.start()
    ports = exchange_ports(port)
    keep: list[Any] = [server]
    for peer in range(me + 1, CLIENTS):
        channel = grpc.aio.insecure_channel(address(ports[peer]), options=options)
        call = channel.stream_stream(f"/{SERVICE}/Exchange", codec.serializer, codec.deserializer)(
            metadata=(("sender", str(me)),)
        )
        await call.wait_for_connection()
        keep += [channel, call]
        add(peer, Link(call.read, call.write))
    await complete.wait()
    return links, keep


async def connect_unary(me: int, codec: Codec, variant: Variant, inbox: LoopInbox) -> Any:
    """One grpc.aio call for each frame; nothing waits for the reply."""
    import grpc

    async def serve(frame: Any, _: Any) -> bytes:
        inbox.put(frame)
        return b""

    options = [*variant.options.items(), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=options)
    handler = grpc.unary_unary_rpc_method_handler(serve, codec.deserializer, None)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Push": handler}),)
    )
    port = server.add_insecure_port(address(0))
    await server.start()
    ports = exchange_ports(port)
    links: dict[int, Link] = {}
    tasks: set[Any] = set()
    for peer in range(CLIENTS):
        if peer != me:
            channel = grpc.aio.insecure_channel(address(ports[peer]), options=options)
            push = channel.unary_unary(f"/{SERVICE}/Push", codec.serializer, None)

            def post(frame: Any, push: Any = push) -> None:
                call = push(frame)
                tasks.add(call)
                call.add_done_callback(tasks.discard)

            links[peer] = Link(None, None)
            links[peer].post = post
    return links, server


async def connect_tcp(me: int) -> dict[int, Link]:
    """One TCP connection for each pair, a frame after its length."""
    links: dict[int, Link] = {}
    complete = asyncio.Event()

    def add(peer: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def read() -> bytes:
            (size,) = struct.unpack("!I", await reader.readexactly(4))
            return await reader.readexactly(size)

        def post(frame: bytes) -> None:
            writer.write(struct.pack("!I", len(frame)))
            writer.write(frame)

        links[peer] = Link(read, None)
        links[peer].post = post  # type: ignore[assignment]
        if len(links) == CLIENTS - 1:
            complete.set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        add((await reader.readexactly(1))[0], reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    ports = exchange_ports(server.sockets[0].getsockname()[1])
    for peer in range(me + 1, CLIENTS):
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[peer], limit=1 << 20)
        writer.write(bytes([me]))
        add(peer, reader, writer)
    await complete.wait()
    return links


async def run_on_loop(me: int, variant: Variant, phases: Phases, codec: Codec) -> None:
    """Shapes whose training is driven by the event loop: inline, executor, unary, tcp."""
    inbox = LoopInbox(codec)
    loop = asyncio.get_running_loop()
    if variant.shape == "unary":
        links, _keep = await connect_unary(me, codec, variant, inbox)
    elif variant.shape == "tcp":
        links = await connect_tcp(me)
    else:
        links, _keep = await connect_streams(me, codec, variant)
    tasks = []
    if variant.shape != "unary" and variant.read == "task":
        tasks += [loop.create_task(link.read_all(inbox.put)) for link in links.values()]
    if variant.shape not in ("unary", "tcp") and variant.write == "queue":
        tasks += [loop.create_task(link.write_all()) for link in links.values()]

    with ThreadPoolExecutor(1) as pool:
        got: dict[int, Any] | None = None
        while True:
            try:
                if variant.shape == "executor":
                    sends = await loop.run_in_executor(pool, advance, phases, got)
                else:
                    sends = advance(phases, got)
            except StopTraining:
                break
            key, frames = sends
            if variant.write == "queue":
                for peer, frame in frames.items():
                    links[peer].post(frame)
            elif variant.write == "inline":
                for peer, frame in frames.items():
                    await links[peer].write(frame)
            else:
                await asyncio.gather(*(links[peer].write(f) for peer, f in frames.items()))
            if variant.read == "direct":
                for frame in await asyncio.gather(*(link.read() for link in links.values())):
                    inbox.put(frame)
            got = await inbox.get(key)
    await asyncio.Event().wait()  # the last frames are still to be written


class StopTraining(Exception):
    """The training generator is at its end (StopIteration cannot cross a future)."""


def advance(phases: Phases, got: dict[int, Any] | None) -> Sends:
    try:
        return next(phases) if got is None else phases.send(got)
    except StopIteration:
        raise StopTraining from None


def run_thread(me: int, variant: Variant, phases: Phases, codec: Codec) -> None:
    """Training in this thread, grpc.aio on a loop in another."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    inbox = ThreadInbox(codec)
    tasks: list[Any] = []

    async def connect() -> tuple[dict[int, Link], Any]:
        links, keep = await connect_streams(me, codec, variant)
        for link in links.values():
            tasks.append(loop.create_task(link.read_all(inbox.put)))
            tasks.append(loop.create_task(link.write_all()))
        return links, keep

    links, _keep = asyncio.run_coroutine_threadsafe(connect(), loop).result()

    def post(frames: dict[int, Any]) -> None:
        for peer, frame in frames.items():
            links[peer].post(frame)

    drive(phases, lambda frames: loop.call_soon_threadsafe(post, frames) and None, inbox)


# --- Shapes on threads -------------------------------------------------------------------------


def drive(phases: Phases, post: Callable[[dict[int, Any]], None], inbox: ThreadInbox) -> None:
    """Run the training in this thread."""
    key, frames = next(phases)
    while True:
        post(frames)
        try:
            key, frames = phases.send(inbox.get(key))
        except StopIteration:
            signal.pause()  # the streams must stay open: peers still read the last frames


def run_alone(me: int, phases: Phases) -> None:
    """No exchange at all: a client is given zeros in place of its peers' frames."""
    import torch

    exchange_ports(0)
    got = {peer: torch.zeros(BATCH, WIDTH) for peer in range(CLIENTS) if peer != me}
    next(phases)
    with contextlib.suppress(StopIteration):
        while True:
            phases.send(got)


def run_sync(me: int, variant: Variant, phases: Phases, codec: Codec) -> None:
    """Sync grpc with threads: a bidirectional stream for each pair, or one stream each way."""
    import grpc

    bidirectional = variant.shape == "sync-bidi"
    inbox = ThreadInbox(codec)
    queues: dict[int, queue.SimpleQueue[Any]] = {
        peer: queue.SimpleQueue() for peer in range(CLIENTS) if peer != me
    }

    def outgoing(peer: int) -> Iterator[Any]:
        while True:
            yield queues[peer].get()

    def read_all(frames: Iterable[Any]) -> None:
        try:
            for frame in frames:
                inbox.put(frame)
        except grpc.RpcError:
            return  # the run is over and the peer has gone

    def serve_both(frames: Iterator[Any], context: Any) -> Iterator[Any]:
        threading.Thread(target=read_all, args=(frames,), daemon=True).start()
        yield from outgoing(int(dict(context.invocation_metadata())["sender"]))

    def serve_one(frames: Iterator[Any], _: Any) -> bytes:
        read_all(frames)
        return b""

    options = [*variant.options.items(), ("grpc.so_reuseport", 0)]
    server = grpc.server(ThreadPoolExecutor(CLIENTS), options=options)
    if bidirectional:
        handler = grpc.stream_stream_rpc_method_handler(
            serve_both, codec.deserializer, codec.serializer
        )
    else:
        handler = grpc.stream_unary_rpc_method_handler(serve_one, codec.deserializer, None)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Exchange": handler}),)
    )
    port = server.add_insecure_port(address(0))
    server.start()
    ports = exchange_ports(port)
    keep: list[Any] = []
    for peer in queues:
        if bidirectional and peer < me:
            continue
        channel = grpc.insecure_channel(address(ports[peer]), options=options)
        path, metadata = f"/{SERVICE}/Exchange", (("sender", str(me)),)
        if bidirectional:
            call = channel.stream_stream(path, codec.serializer, codec.deserializer)
            replies = call(outgoing(peer), metadata=metadata)
            threading.Thread(target=read_all, args=(replies,), daemon=True).start()
            keep += [channel, replies]
        else:
            call = channel.stream_unary(path, codec.serializer, None)
            keep += [channel, call.future(outgoing(peer), metadata=metadata)]

    def post(frames: dict[int, Any]) -> None:
        for peer, frame in frames.items():
            queues[peer].put(frame)

    drive(phases, post, inbox)


# --- Processes ---------------------------------------------------------------------------------


def child(name: str, me: int, steps: int, warmup: int) -> None:
    """One client (or the oracle): meet the others, train, print the result."""
    import torch

    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "The given buffer is not writable")
    if name == "oracle":
        report(oracle(steps, warmup))
        return
    variant = VARIANTS[name]
    codec = Codec(variant.codec, me)
    phases = training(Client(me), codec, warmup, steps)
    if variant.switch_interval:
        sys.setswitchinterval(variant.switch_interval)
    if variant.collector == "freeze":
        gc.collect()
        gc.freeze()
    elif variant.collector == "off":
        gc.disable()
    if variant.shape == "none":
        run_alone(me, phases)
    elif variant.shape == "thread":
        run_thread(me, variant, phases, codec)
    elif variant.shape.startswith("sync"):
        run_sync(me, variant, phases, codec)
    else:
        factory = asyncio.new_event_loop
        if variant.uvloop:
            import uvloop  # type: ignore[import-not-found]

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(run_on_loop(me, variant, phases, codec))
    signal.pause()  # the parent ends it


def fork(name: str, me: int, args: argparse.Namespace) -> tuple[int, IO[str], IO[str]]:
    """Start a client; return its process id, its stdin and its stdout.

    This process has imported torch, which takes seconds, but never grpc, which must not be forked.
    """
    child_in, to_child = os.pipe()
    from_child, child_out = os.pipe()
    pid = os.fork()
    if pid:
        os.close(child_in)
        os.close(child_out)
        return pid, os.fdopen(to_child, "w"), os.fdopen(from_child)
    try:
        signal.alarm(args.timeout)  # ends this process, whatever becomes of the parent
        os.dup2(child_in, 0)
        os.dup2(child_out, 1)
        if not args.verbose:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        if name != "oracle":
            os.environ.update(VARIANTS[name].env)
        child(name, me, args.steps, args.warmup)
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def measure(name: str, args: argparse.Namespace) -> dict[str, float]:
    """Run one federation (or the oracle) in fresh processes and sum it up."""
    count = 1 if name == "oracle" else CLIENTS
    children = [fork(name, k, args) for k in range(count)]
    try:
        if name != "oracle":
            ports = [json.loads(stdout.readline())["port"] for _, _, stdout in children]
            for _, stdin, _ in children:
                stdin.write(json.dumps(ports) + "\n")
                stdin.flush()
        results = [json.loads(stdout.readline()) for _, _, stdout in children]
    finally:
        for pid, _, _ in children:
            os.kill(pid, signal.SIGKILL)
        for pid, stdin, stdout in children:
            os.waitpid(pid, 0)
            stdout.close()
            with contextlib.suppress(BrokenPipeError):
                stdin.close()
    total = {key: sum(result[key] for result in results) for key in results[0]}
    return total | {key: max(r[key] for r in results) for key in ("step_ms", "mean_ms")}


def compare(names: list[str], args: argparse.Namespace) -> Any:
    """Measure all, interleaved and in a new order each round; medians over the rounds."""
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in ["oracle", *names]}
    failed: dict[str, str] = {}
    order = random.Random(0)
    for number in range(args.repeats):
        names = order.sample(names, len(names))
        for name in ["oracle", *names]:
            print(f"round {number + 1}/{args.repeats}: {name}", file=sys.stderr, flush=True)
            try:
                rounds[name].append(measure(name, args))
            except (OSError, ValueError):
                failed[name] = "a client ended early; --verbose shows why"
    rows = []
    reference = statistics.median(result["step_ms"] for result in rounds["oracle"])
    for name, results in rounds.items():
        if not results:
            rows.append({"name": name, "error": failed[name]})
            continue
        row: dict[str, Any] = {"name": name}
        for key in results[0]:
            row[key] = round(statistics.median(result[key] for result in results), 3)
        low, high = (f(result["step_ms"] for result in results) for f in (min, max))
        row |= {"step_ms_min": round(low, 3), "step_ms_max": round(high, 3)}
        row["ratio"] = round(row["step_ms"] / reference, 3)
        row["wire_ratio"] = round(row["wire_bytes"] / PAYLOAD_BYTES, 4)
        row["rounds"] = len(results)
        rows.append(row)
    return rows


def print_table(rows: list[dict[str, Any]]) -> None:
    print("| variant | ms a step (min to max) | ratio | CPU ms a step | switches | wire ratio |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        if "error" in row:
            print(f"| `{row['name']}` | failed: {row['error']} | | | | |")
            continue
        spread = f"{row['step_ms']:.2f} ({row['step_ms_min']:.2f} to {row['step_ms_max']:.2f})"
        print(
            f"| `{row['name']}` | {spread} | {row['ratio']:.2f} | {row['cpu_ms']:.2f} "
            f"| {row['switches']:.0f} | {row['wire_ratio']:.4f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=300, help="steps measured in a run")
    parser.add_argument("--warmup", type=int, default=50, help="steps before them")
    parser.add_argument("--repeats", type=int, default=5, help="rounds; medians are printed")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one run")
    parser.add_argument(
        "--variants",
        default="shapes",
        help="shapes, knobs, combined, all, or names: " + ", ".join(VARIANTS),
    )
    parser.add_argument("--format", choices=("table", "json"), default="table")
    parser.add_argument("--verbose", action="store_true", help="let clients write to stderr")
    args = parser.parse_args()
    groups = {
        "shapes": SHAPES,
        "knobs": {"aio-inline": 0} | KNOBS,
        "combined": COMBINED,
        "all": VARIANTS,
    }
    names = list(groups.get(args.variants) or args.variants.replace(";", " ").split())
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        parser.error(f"unknown variants: {', '.join(unknown)}")
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GRPC_VERBOSITY": "ERROR"}
    Client(0)  # imports torch, lazy parts included, before any fork: it takes seconds
    rows = compare(names, args)
    if args.format == "json":
        print(json.dumps({"payload_bytes_per_step": PAYLOAD_BYTES, "rows": rows}, indent=2))
    else:
        print_table(rows)


if __name__ == "__main__":
    main()
