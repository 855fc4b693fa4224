"""Bytes and time of a run, from its settings, its samples and the network."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from laser_vfl.core.alignment import Group
from laser_vfl.core.schedule.schedule import in_order
from laser_vfl.core.schedule.timeline import Timeline
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.planning.clocks import Clocks, NetworkLine, Round
from laser_vfl.planning.step_rounds import StepRounds, alignments_of, labelled_mask

MAX_SCHEDULED = 500_000
"""At most this many samples are scheduled; larger numbers are scaled up."""

MAX_EXCHANGES = 5_000
"""Of each pair of clients together, in the stage before training that some methods have."""

FEWEST_STEPS, PAIRS_SIMULATED = 50, 16_000
"""A thousand steps of four clients are simulated; a longer epoch is scaled up."""


@dataclass(frozen=True)
class PlannedFederation:
    """What decides the traffic: settings, roster, who has labels, and who holds which samples."""

    settings: TrainingSettings
    roster: tuple[str, ...]
    labels: tuple[str, ...]
    groups: tuple[Group, ...]
    test_groups: tuple[Group, ...] = ()
    tls: bool = True


@dataclass(frozen=True)
class Compute:
    """The computing time of a client for a step, and for each frame that it sends or receives."""

    step_s: float
    frame_s: float = 0.0
    origin: str = "given"


@dataclass(frozen=True)
class Traffic:
    """Bytes up and down of one client: of tensors, over TCP, and with all headers."""

    payload_up: int = 0
    payload_down: int = 0
    tcp_up: int = 0
    tcp_down: int = 0
    link_up: int = 0
    link_down: int = 0
    frames_up: int = 0
    frames_down: int = 0

    def times(self, factor: float) -> "Traffic":
        """Return the traffic multiplied by a factor."""
        return Traffic(*(round(value * factor) for value in vars(self).values()))

    def plus(self, other: "Traffic") -> "Traffic":
        """Return the sum of two."""
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

    def with_pipeline(self, depth: int) -> "Stage":
        """Return the stage with so many steps under way besides the oldest one.

        Then a step takes no longer than its computing, or its bytes, or its share of the way from
        its beginning to its end, whatever is most.
        """
        seconds = max(self.compute_s, self.bandwidth_s, self.seconds / (depth + 1))
        compute_s = min(self.compute_s, seconds)
        latency_s = min(self.latency_s, seconds - compute_s)
        bandwidth_s = seconds - compute_s - latency_s
        return replace(
            self,
            seconds=seconds,
            compute_s=compute_s,
            latency_s=latency_s,
            bandwidth_s=bandwidth_s,
        )


@dataclass(frozen=True)
class Forecast:
    """The stages of a run, in their order."""

    steps_per_epoch: int
    stages: tuple[Stage, ...]

    @property
    def seconds(self) -> float:
        """The time of all stages."""
        return sum(stage.seconds for stage in self.stages)

    @property
    def training(self) -> Stage:
        """The stage called training."""
        return next(stage for stage in self.stages if stage.name == "training")

    @property
    def traffic(self) -> tuple[Traffic, ...]:
        """Of all stages, by client."""
        total = self.stages[0].traffic
        for stage in self.stages[1:]:
            total = tuple(a.plus(b) for a, b in zip(total, stage.traffic, strict=True))
        return total


def forecast(federation: PlannedFederation, line: NetworkLine, compute: Compute) -> Forecast:
    """Simulate an epoch of the real schedule, and the stages before and after training."""
    settings, num_clients = federation.settings, len(federation.roster)
    labelled = labelled_mask(federation.labels, federation.roster)
    step_rounds = StepRounds(settings, federation.roster, labelled, tls=federation.tls)
    most = max(FEWEST_STEPS, PAIRS_SIMULATED // num_clients**2)
    stages = []

    def add(name: str, steps: Iterable[list[Round]], num_simulated: int, num_steps: int) -> None:
        stages.append(_stage(name, steps, num_simulated, num_steps, num_clients, line, compute))

    is_mixed = settings.batching == "mixed"
    shown = shrunk(federation.groups, most * settings.batch_size if is_mixed else MAX_SCHEDULED)
    timeline, whole = _timeline(federation, shown), _timeline(federation, federation.groups)
    alignments = alignments_of(shown, num_clients)
    num_simulated = min(timeline.steps_per_epoch, most)
    for stage, simulated in zip(whole.stages, timeline.stages, strict=True):
        if stage.kind == "exchange":
            add(stage.name, *_exchanges(federation, step_rounds), stage.num_steps)
            continue
        numbers = range(simulated.first, simulated.first + num_simulated)
        steps = (step_rounds.step(timeline.step(n), n, alignments) for n in numbers)
        add(stage.name, steps, num_simulated, stage.num_steps)
        if stage.kind == "training" and settings.pipeline:
            stages[-1] = stages[-1].with_pipeline(settings.pipeline)
    if federation.test_groups:
        tests = shrunk(federation.test_groups, most * settings.batch_size)
        test_alignments = alignments_of(tests, num_clients)
        batches = list(in_order(tests, settings.batch_size))
        num_steps = -(-sum(g.size for g in federation.test_groups) // settings.batch_size)
        steps = (step_rounds.evaluation(step, test_alignments) for step in batches)
        add("evaluation", steps, len(batches), num_steps)
    return Forecast(whole.steps_per_epoch, tuple(stages))


def shrunk(groups: Sequence[Group], most: int) -> tuple[Group, ...]:
    """Return groups with at most so many samples or little more, in the same shares."""
    total = sum(group.size for group in groups)
    if total <= most:
        return tuple(groups)
    return tuple(Group(g.observed, max(1, g.size * most // total)) for g in groups)


def _exchanges(
    federation: PlannedFederation, step_rounds: StepRounds
) -> tuple[Iterable[list[Round]], int]:
    """Return some exchanges of the method's preparation, and how many these are."""
    num_clients = len(federation.roster)
    most = MAX_EXCHANGES * federation.settings.batch_size // max(1, num_clients * (num_clients - 1))
    timeline = _timeline(federation, shrunk(federation.groups, most))
    num_simulated = next(stage.num_steps for stage in timeline.stages if stage.kind == "exchange")
    steps = (step_rounds.step(timeline.step(number), number, ()) for number in range(num_simulated))
    return steps, num_simulated


def _timeline(federation: PlannedFederation, groups: Sequence[Group]) -> Timeline:
    """Return the steps of a run on these groups."""
    settings = federation.settings
    preparation = method_named(settings.method).preparation
    return Timeline(preparation, settings, groups, len(federation.roster))


def _stage(
    name: str,
    steps: Iterable[list[Round]],
    num_simulated: int,
    num_steps: int,
    num_clients: int,
    line: NetworkLine,
    compute: Compute,
) -> Stage:
    """Simulate some steps and scale the result to all of them.

    Three clocks show what latency adds to computing, and what bandwidth adds to both.
    """
    clocks = [
        Clocks(num_clients, each, compute_s=compute.step_s, frame_s=compute.frame_s)
        for each in (NetworkLine(), NetworkLine(rtt_s=line.rtt_s), line)
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
    factor = num_steps / max(1, num_simulated)
    alone, late, full = (clock.seconds * factor for clock in clocks)
    traffic = tuple(Traffic(*count).times(factor) for count in counts)
    return Stage(name, num_steps, full, alone, late - alone, full - late, traffic)
