"""Whole steps of clients that compute on a GPU: every tensor is on the device where it is used."""

import numpy as np
import pytest
import torch
from torch import nn

from laser_vfl.client.device import Host
from laser_vfl.client.peers.frame_buffer import FrameBuffer
from laser_vfl.client.peers.step_transport import ExchangeFormat, PeerTransport
from laser_vfl.client.session.member_view import MemberView, Peer
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.tables.block import EncodedTable
from laser_vfl.client.training.training_step import StepContext, StepInputs, TrainingStep
from laser_vfl.core.alignment import align_rows
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import ModelParts
from laser_vfl.core.privacy.noise import Release
from laser_vfl.core.schedule.timeline import Timeline
from laser_vfl.core.subsets import mask_of
from laser_vfl.core.training.learner import Learner, OptimizerSettings
from laser_vfl.core.training.task_sampling import Tasks
from laser_vfl.methods.registry import METHODS, method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.v1 import peer_pb2 as pb
from tests.support.fakes.pretended_gpu import GPU, OnGpu, PretendedGpu, StillOnGpu, WrongDevice

CPU = torch.device("cpu")
WIDTH, FEATURES, CLASSES = 8, 5, ("blue", "green", "red")
OBSERVED = ({0, 1, 2}, {0, 1}, {0, 1, 2}, {1, 2}, {0, 2}, {0, 1, 2}, {0}, {0, 1, 2})
"""Who holds each sample."""

NUM_STEPS = 3
STEPPING = sorted(name for name, method in METHODS.items() if not method.preparation.local_stage)
"""All methods but those that have stages before training."""


class Mesh:
    """Hands frames to the other clients of the same process."""

    def __init__(self, me, buffers):
        self._me, self._buffers = me, buffers
        self.holds, self.take = buffers[me].holds, buffers[me].take

    def send(self, frames):
        for peer, _, data in frames:
            self._buffers[peer].put(self._me, pb.Frame.FromString(data))

    def key_of(self, peer):
        return bytes([self._me + peer] * 32)

    def check(self):
        pass


class Federation:
    """Three clients in one thread, each of which does its part of a step when all can do it."""

    def __init__(self, device, *, privacy=None, precision="float32", optimizer="adam", **settings):
        self.settings = TrainingSettings(
            representation_dim=WIDTH, batch_size=4, epochs=2, seed=5, **settings
        )
        rows = [[n for n, blocks in enumerate(OBSERVED) if k in blocks] for k in range(3)]
        digests = [np.array([[n] * 32 for n in held], np.uint8) for held in rows]
        self.alignments = align_rows(digests)
        buffers = [FrameBuffer(self.settings.pipeline) for _ in range(3)]
        self.learners, self.contexts = [], []
        for client, buffer in enumerate(buffers):
            buffer.begin(1)
            learner = self._learner(client, device, privacy, precision, optimizer)
            peers = [Peer(k, str(k), k + 1, f"host:{k}") for k in range(3)]
            view = MemberView("run", 1, peers.pop(client), tuple(peers), (), (), 0)
            mesh, form = Mesh(client, buffers), ExchangeFormat.of(learner)
            transport = PeerTransport(mesh, view, form, Progress())
            table = self._table(client, len(rows[client]))
            host, alignment = Host(learner.device), self.alignments[client]
            self.learners.append(learner)
            self.contexts.append(StepContext(learner, host, transport, table, alignment))

    def train(self):
        """Do some steps, with as many under way as `pipeline` allows; return all losses."""
        groups = self.alignments[0].groups
        timeline = Timeline(self.learners[0].method.preparation, self.settings, groups, 3)
        under_way, losses = [], []
        for number in range(NUM_STEPS):
            scheduled = timeline.step(number)
            steps = []
            for context in self.contexts:
                plan = context.learner.plan(scheduled.batch, context.alignment, 0b111)
                if plan is not None:
                    inputs = StepInputs.of(context, plan)
                    steps.append(TrainingStep(context, inputs, scheduled.progress))
            under_way.append(steps)
            self._each(steps, TrainingStep.begin)
            self._each([step for step in steps if not step.has_learnt], TrainingStep.learn)
            losses += [step.loss for step in steps]
            if len(under_way) > self.settings.pipeline:
                self._each(under_way.pop(0), TrainingStep.apply)
        for steps in under_way:
            self._each(steps, TrainingStep.apply)
        return losses

    def states(self):
        """Return all that training would go on from."""
        return [
            {name: tensor.clone() for name, tensor in learner.state().items()}
            for learner in self.learners
        ]

    def _each(self, steps, act):
        for step in steps:
            act(step)
        for context in self.contexts:
            context.transport.flush()

    def _learner(self, client, device, privacy, precision, optimizer):
        method = method_named(self.settings.method)
        heads = method.blocks.heads(mask_of([0, 1]))
        groups = self.alignments[0].groups
        context = FederationContext(client, 3, heads, self.settings, groups)
        parts = ModelParts(_representation, _head, (FEATURES,), len(CLASSES), CLASSES)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(40 + client)
            representation = method.models.representation(parts, context)
            fusion = method.models.fusion(parts, context) if heads >> client & 1 else None
        return Learner(
            context,
            representation,
            fusion,
            optimizer=OptimizerSettings(name=optimizer, lr=0.1),
            device=device,
            precision=precision,
            release=privacy,
            method=method,
        )

    def _table(self, client, num_rows):
        random = np.random.default_rng(client)
        inputs = torch.from_numpy(random.normal(size=(num_rows, FEATURES)).astype(np.float32))
        targets = torch.from_numpy(random.integers(0, len(CLASSES), num_rows))
        ids = [str(row) for row in range(num_rows)]
        digests = np.zeros((num_rows, 32), np.uint8)
        return EncodedTable(
            ids, digests, inputs, targets, np.ones(num_rows, bool), torch.ones(num_rows)
        )


def _representation(shape, form):
    layers = nn.Linear(*shape, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.2)
    return nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH))


def _head():
    return nn.Sequential(nn.Dropout(0.2), nn.Linear(WIDTH, len(CLASSES)))


@pytest.fixture
def gpu(monkeypatch):
    """Compute on a pretended GPU for the length of a test."""
    with PretendedGpu(monkeypatch):
        yield GPU


def on_cpu(**settings):
    """Return what the same steps give on the CPU."""
    federation = Federation(CPU, **settings)
    return federation.train(), federation.states()


def equal(states, others):
    return all(
        one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
        for one, other in zip(states, others, strict=True)
    )


@pytest.mark.parametrize(
    "settings",
    [
        *({"method": name} for name in STEPPING),
        {"optimizer": "sgd"},
        {"pipeline": 1},
        {"preset": "paper"},
        {"wire_precision": "bfloat16"},
        {"wire_precision": "int8"},
        {"masked_gradients": True},
        {"privacy": Release(1.0, 0.1, b"secret")},
    ],
    ids=str,
)
def test_a_step_computes_on_the_gpu_what_it_computes_on_the_cpu(gpu, settings):
    losses, states = on_cpu(**settings)
    federation = Federation(gpu, **settings)
    assert federation.train() == losses
    assert equal(federation.states(), states)
    for learner in federation.learners:
        assert all(isinstance(p, OnGpu) for p in learner.models.parameters())


@pytest.mark.parametrize(("owner", "move"), [(Host, "to_device"), (Host, "to_host"), (Tasks, "to")])
def test_a_tensor_that_stays_where_it_was_is_noticed(gpu, monkeypatch, owner, move):
    monkeypatch.setattr(owner, move, lambda self, tensor: self if owner is Tasks else tensor)
    with pytest.raises((WrongDevice, StillOnGpu)):
        Federation(gpu).train()
