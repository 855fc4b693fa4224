"""What a run will send and how long it will take, from its settings, samples and lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from laser_vfl.cli.plan_clocks import Clocks, Line, Round
from laser_vfl.cli.plan_walk import Walk, alignments_of, labelled_mask
from laser_vfl.core.alignment import Group
from laser_vfl.core.schedule import in_order
from laser_vfl.core.settings import TrainingSettings
from laser_vfl.core.timeline import Timeline

MAX_SCHEDULED = 500_000
"""Of more samples, as many are scheduled, with the same patterns in the same shares."""

MAX_CHUNKS = 5_000

FEWEST_STEPS, PAIRS_WALKED = 50, 16_000
"""A thousand steps of four clients are walked through; an epoch that is longer is scaled up."""


@dataclass(frozen=True)
class Federation:
    """All that decides what is sent: settings, roster, who has labels, and who holds what."""

    settings: TrainingSettings
    roster: tuple[str, ...]
    labels: tuple[str, ...]
    groups: tuple[Group, ...]
    test_groups: tuple[Group, ...] = ()
    tls: bool = True


@dataclass(frozen=True)
class Compute:
    """What a client computes in a step, and what each frame costs it to send or to take in."""

    step_s: float
    frame_s: float = 0.0
    origin: str = "given"


@dataclass(frozen=True)
class Traffic:
    """What one client sends and gets: the numbers, over TCP, and on its line with all headers."""

    payload_up: int = 0
    payload_down: int = 0
    tcp_up: int = 0
    tcp_down: int = 0
    link_up: int = 0
    link_down: int = 0
    frames_up: int = 0
    frames_down: int = 0

    def times(self, factor: float) -> "Traffic":
        """Return the traffic of so many times as much."""
        return Traffic(*(round(value * factor) for value in vars(self).values()))

    def plus(self, other: "Traffic") -> "Traffic":
        """Return both together."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Traffic(*(a + b for a, b in pairs))


@dataclass(frozen=True)
class Stage:
    """A part of a run; its seconds are those of computing, of latency and of bandwidth."""

    name: str
    num_steps: int
    seconds: float
    compute_s: float
    latency_s: float
    bandwidth_s: float
    traffic: tuple[Traffic, ...]
    """By client, in the order of the roster."""

    @property
    def step_s(self) -> float:
        """The mean time of a step."""
        return self.seconds / max(1, self.num_steps)


@dataclass(frozen=True)
class Forecast:
    """The stages of a run, in their order."""

    steps_per_epoch: int
    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        """How long all of it takes."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def training(self) -> Stage:
        """The stage that a run is about."""
        return next(stage for stage in self.stages if stage.name == "training")

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Of all stages, by client."""
        total = self.stages[0].traffic
        for stage in self.stages[1:]:
            total = tuple(a.plus(b) for a, b in zip(total, stage.traffic, strict=True))
        return total


def forecast(federation: Federation, line: Line, compute: Compute) -> Forecast:
    """Walk through an epoch of the real schedule, and through what comes before and after it."""
    settings, num_clients = federation.settings, len(federation.roster)
    labelled = labelled_mask(federation.labels, federation.roster)
    walk = Walk(settings, federation.roster, labelled, tls=federation.tls)
    most = max(FEWEST_STEPS, PAIRS_WALKED // num_clients**2)
    stages = []

    def add(name: str, steps: Iterable[list[Round]], num_walked: int, num_steps: int) -> None:
        stages.append(_stage(name, steps, num_walked, num_steps, num_clients, line, compute))

    distilling = 0
    if settings.method == "vfedtrans":
        distilling = settings.distillation_epochs
        add("joint svd", *_chunks(federation, walk))
    is_mixed = settings.batching == "mixed"
    groups = shrunk(federation.groups, most * settings.batch_size if is_mixed else MAX_SCHEDULED)
    timeline, num_chunks = _timeline(federation, groups)
    per_epoch = _timeline(federation, federation.groups)[0].steps_per_epoch
    alignments = alignments_of(groups, num_clients)
    num_walked = min(timeline.steps_per_epoch, most)
    start = num_chunks
    for name, epochs in (("distillation", distilling), ("training", settings.epochs)):
        numbers = range(start, start + num_walked)
        steps = (walk.moment(timeline.moment(n), n, alignments) for n in numbers)
        if epochs:
            add(name, steps, num_walked, epochs * per_epoch)
        start += epochs * timeline.steps_per_epoch
    if federation.test_groups:
        tests = shrunk(federation.test_groups, most * settings.batch_size)
        test_alignments = alignments_of(tests, num_clients)
        batches = list(in_order(tests, settings.batch_size))
        num_steps = -(-sum(g.size for g in federation.test_groups) // settings.batch_size)
        steps = (walk.evaluation(step, test_alignments) for step in batches)
        add("evaluation", steps, len(batches), num_steps)
    return Forecast(per_epoch, tuple(stages))


def shrunk(groups: Sequence[Group], most: int) -> tuple[Group, ...]:
    """Return groups with at most so many samples or little more, in the same shares."""
    total = sum(group.size for group in groups)
    if total <= most:
        return tuple(groups)
    return tuple(Group(g.observed, max(1, g.size * most // total)) for g in groups)


def _chunks(federation: Federation, walk: Walk) -> tuple[Iterable[list[Round]], int, int]:
    """Return the steps of the joint SVD, how many these are, and how many a run has."""
    num_clients = len(federation.roster)
    most = MAX_CHUNKS * federation.settings.batch_size // max(1, num_clients * (num_clients - 1))
    timeline, num_walked = _timeline(federation, shrunk(federation.groups, most))
    steps = (walk.moment(timeline.moment(number), number, ()) for number in range(num_walked))
    return steps, num_walked, _timeline(federation, federation.groups)[1]


def _timeline(federation: Federation, groups: Sequence[Group]) -> tuple[Timeline, int]:
    """Return the steps of a run, and how many of them come before the first epoch."""
    settings = federation.settings
    timeline = Timeline(settings, groups, len(federation.roster))
    epochs = settings.epochs
    if settings.method == "vfedtrans":
        epochs += settings.distillation_epochs
    return timeline, timeline.num_steps - epochs * timeline.steps_per_epoch


def _stage(
    name: str,
    steps: Iterable[list[Round]],
    num_walked: int,
    num_steps: int,
    num_clients: int,
    line: Line,
    compute: Compute,
) -> Stage:
    """Walk through some steps and scale what came of it to all of them.

    Three clocks tell what latency adds to computing, and what bandwidth adds to both.
    """
    clocks = [
        Clocks(num_clients, each, compute_s=compute.step_s, frame_s=compute.frame_s)
        for each in (Line(), Line(rtt_s=line.rtt_s), line)
    ]
    counts = [[0] * 8 for _ in range(num_clients)]
    for rounds in steps:
        for clock in clocks:
            clock.advance(rounds)
        for message in (message for one in rounds for message in one.messages):
            for client, at in ((message.sender, 0), (message.receiver, 1)):
                counts[client][at] += message.payload_bytes
                counts[client][at + 2] += message.tcp_bytes
                counts[client][at + 4] += message.link_bytes
                counts[client][at + 6] += 1
    factor = num_steps / max(1, num_walked)
    alone, late, full = (clock.seconds * factor for clock in clocks)
    traffic = tuple(Traffic(*count).times(factor) for count in counts)
    return Stage(name, num_steps, full, alone, late - alone, full - late, traffic)
