"""One run at one client: all that outlives a change of members. Its steps run in a thread."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import Host, num_threads
from laser_vfl.client.own_models import OwnModels
from laser_vfl.client.peers.frame_buffer import Interrupted
from laser_vfl.client.peers.step_transport import (
    ExchangeFormat,
    FrameMesh,
    LocalTransport,
    PeerTransport,
    StepTransport,
)
from laser_vfl.client.privacy_budget import budget
from laser_vfl.client.session.member_view import MemberView
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.storage.checkpoint_writer import CheckpointWriter
from laser_vfl.client.storage.checkpoints import Checkpoints
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.storage.step_log import StepLog, has_learnt, next_noted
from laser_vfl.client.tables.block import Block
from laser_vfl.client.training.evaluation_step import begin_evaluation, evaluate_step, scores_of
from laser_vfl.client.training.pipeline import NumberedStep, Pipeline
from laser_vfl.client.training.preparation_step import exchange_step
from laser_vfl.client.training.progress_display import ProgressDisplay
from laser_vfl.client.training.training_step import StepContext, StepInputs, TrainingStep
from laser_vfl.core.alignment import Group
from laser_vfl.core.availability import count_samples
from laser_vfl.core.errors import ContractError, DataError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.privacy.masking import num_unmasked
from laser_vfl.core.release import __version__
from laser_vfl.core.schedule.schedule import in_order
from laser_vfl.core.schedule.step_plan import Plan
from laser_vfl.core.schedule.timeline import Timeline
from laser_vfl.core.subsets import clients_in, has, mask_of, subset_name
from laser_vfl.core.training.learner import Learner

log = logging.getLogger(__name__)

NOTHING_LEARNT = "the others have finished, and this client has not learnt anything yet"

KEPT_COMPLETE = 2
"""The one that everybody has, and one before it in case a disk spoils it."""

KEPT_LATER = 8
"""Those above it; more of them only pile up when somebody cannot write any."""


class Trainer:
    """Training, evaluation and the model, from any step on and under any view."""

    def __init__(
        self,
        config: ClientConfig,
        block: Block,
        record: RunRecord,
        build: Callable[[], Learner],
        state: StateDirectory,
        own: OwnModels,
        progress: Progress,
        metrics: ClientMetrics,
        charge_again: Callable[[int], None] = lambda num_releases: None,
    ) -> None:
        """`charge_again` counts releases of steps that are done again, and may refuse that."""
        self.record = record
        self.is_done = False
        self.is_loaded = False
        """Whether its state is what it should be for joining a run under way."""
        self._pausing = threading.Event()
        """Set to have it end at the next boundary of a step."""
        self._config = config
        self._block = block
        self._build = build
        self._learner = learner = build()
        self._host = Host(learner.device)
        self._state = state
        self._own = own
        self._progress = progress
        self._metrics = metrics
        settings = record.settings
        groups = record.tables["train"].groups
        self._timeline = Timeline(learner.method.preparation, settings, groups, len(record.roster))
        self.num_training_steps = self._timeline.num_steps
        self._tests = list(in_order(record.tables["test"].groups, settings.batch_size))
        self._evaluation = begin_evaluation(learner, block, record.tables["test"])
        self._num_evaluated = 0
        directory = state.run_directory(record.run)
        self._log = StepLog(directory / "steps.log")
        self._loaded: int | None = None
        self._charge_again = charge_again
        self._was_at = next_noted(self._log.path)
        """The step after the last one whose representations may have left this client."""
        self._budget = budget(config.privacy, settings.epochs)
        self._has_said_what_leaves = False
        self._unmasked: UnmaskedRows | None = None
        if settings.masked_gradients and block.labels is not None:
            self._unmasked = UnmaskedRows(groups, learner.context, record.roster)
        self._addresses: dict[str, str] = {}
        """Where members were last seen."""
        self._checkpoints = Checkpoints(directory / "checkpoints")
        self._writer = CheckpointWriter(self._checkpoints, self._note_checkpoints)
        self._display = ProgressDisplay(
            config.name,
            state,
            self.num_training_steps,
            self._timeline.steps_per_epoch,
            progress,
            metrics,
            record.run,
        )
        progress.begin_run(
            record.roster,
            self.num_training_steps,
            len(self._tests),
            count_samples(record.roster, record.tables["train"]),
        )
        self._note_checkpoints()

    @property
    def next_step(self) -> int:
        """The first step that is not done, evaluation counted on."""
        return self._progress.next_step

    def note(self, event: str, **fields: Any) -> None:
        """Have it in the metrics that something happened."""
        self._display.note(event, **fields)

    def start_new(self) -> None:
        """Begin a run that was just aligned: there is nothing to load."""
        self.is_loaded = True

    def load(self, at_most: int | None = None) -> None:
        """Set everything to the best checkpoint up to a step; without one, to how it began."""
        self._writer.wait()
        found = self._checkpoints.load(at_most)
        step = 0
        if found is not None:
            step, tensors, _ = found
            self._learner.load_state(tensors)
        elif self.next_step:
            self._learner.load_state(self._build().state())
        self._checkpoints.drop_after(step)
        self.is_done = False
        self._progress.reached(step)
        self._loaded = step
        self._num_evaluated = 0
        self.is_loaded = True
        self._note_checkpoints()
        self.note("loaded", step=step)
        log.info("at step %d%s", step, ", from a checkpoint" if found else "")

    def adopt_model(self) -> None:
        """Take the model of this run that an earlier process has written; nothing is left to do."""
        self.is_done = self.is_loaded = True
        self._progress.finished()

    def prune(self, complete: int) -> None:
        """Keep the best ones up to a step that everybody has, and the latest ones above it."""
        held = self._progress.checkpoints
        kept = [step for step in held if step <= complete][-KEPT_COMPLETE:]
        kept += [step for step in held if step > complete][-KEPT_LATER:]
        if len(kept) < len(held):
            self._checkpoints.keep(kept)
            self._note_checkpoints()

    def save(self) -> None:
        """Write a checkpoint of where it stands, unless there is one, and wait for it."""
        self._writer.wait()
        is_training = 0 < self.next_step <= self.num_training_steps and not self.is_done
        if is_training and self.next_step not in self._checkpoints.held:
            self._checkpoint(self.next_step, 0)
            self._writer.wait()

    def run(self, view: MemberView, mesh: FrameMesh) -> None:
        """Go on under a view until all is done; Interrupted when it has to stop before."""
        if view.my_next_step > self.num_training_steps + len(self._tests):
            raise ContractError(
                f"the coordinator has this client go on from step {view.my_next_step} of a run "
                f"that has {self.num_training_steps}",
                hint="ask who runs the coordinator",
            )
        self._share_cores(view.addresses)
        self._addresses |= view.addresses
        self._progress.reached(max(self.next_step, view.my_next_step))
        self._charge_rewound()
        self._note_loaded(view.generation)
        self._progress.starts_phase()
        self._display.goes_on_from(self.next_step)
        form = ExchangeFormat.of(self._learner)
        transport = PeerTransport(mesh, view, form, self._progress)
        with self._display:
            self._say_what_leaves()
            self._train(view, transport)
        if self._block.test is not None:
            self._evaluate(view, transport)
        self._write()
        self._progress.finished()  # all members that have finished tell of the same step

    def finish_alone(self) -> None:
        """Take what was learnt so far for the model: the others have finished without us."""
        if self.next_step == 0:
            raise DataError(NOTHING_LEARNT)
        self._share_cores({**self._state.read_addresses(), **self._addresses})
        self._note_loaded(None)
        me = mask_of([self._learner.context.client])
        if self._block.test is not None:
            context = self._context("test", LocalTransport())
            for step in self._tests[self._num_evaluated :]:
                evaluate_step(context, step, me, self._evaluation)
        self._write()

    def pause(self) -> None:
        """Begin no further step; what runs is Interrupted before its next one."""
        self._pausing.set()

    def close(self) -> None:
        """Let go of threads and files."""
        self._writer.close()
        self._log.close()

    def _charge_rewound(self) -> None:
        """Count what leaves again from here on, if this client was further before.

        A person is in each epoch once, and may be in one that is begun or ended half-way.
        """
        num_again = self._was_at - self.next_step
        if num_again > 0:
            num_again += self.record.settings.pipeline  # steps that had begun
            self._charge_again(num_again // self._timeline.steps_per_epoch + 2)
        self._was_at = self.next_step

    def _at_step(self, next_step: int) -> None:
        self._progress.reached(next_step)
        self._was_at = next_step

    def _share_cores(self, addresses: Mapping[str, str]) -> None:
        config = self._config
        torch.set_num_threads(
            num_threads(config.threads, config.own_address, addresses, config.name)
        )

    def _note_loaded(self, generation: int | None) -> None:
        if self._loaded is not None:
            self._log.loaded(self._loaded, generation)
            self._loaded = None

    def _context(self, table: str, transport: StepTransport) -> StepContext:
        rows = self._block.train if table == "train" else self._block.test
        assert rows is not None
        return StepContext(self._learner, self._host, transport, rows, self.record.tables[table])

    def _say_what_leaves(self) -> None:
        """Tell once of a run what noise is worth."""
        if self._has_said_what_leaves:
            return
        self._has_said_what_leaves = True
        budget = self._budget or {}
        if "labels" in budget and self._learner.label_noise is not None:
            log.info(
                "labels of the training table are randomised: epsilon %(epsilon)g for each label, "
                "whatever leaves this client",
                budget["labels"],
            )
        if budget.get("noise"):
            log.info(
                "noise on representations: epsilon %(epsilon_per_release).4g for one release of a "
                "person's features and %(epsilon).4g for the %(num_releases)d of this run, given "
                "the parameters, at delta %(delta)g",
                budget,
            )

    def _train(self, view: MemberView, transport: StepTransport) -> None:
        context = self._context("train", transport)
        left = range(self.next_step, self.num_training_steps)
        if left and not view.participants(left[-1]) & self._learner.context.heads:
            log.warning("nobody who predicts takes part: the remaining steps change nothing")
        pipeline = Pipeline(
            transport,
            self._timeline.applied_before,
            lambda number: self._prepared(context, number, view.participants(number)),
            lambda: self._begin_step(transport),
            together=self.record.settings.pipeline > 0,
        )
        self._metrics.step_begins()
        begun_at = time.monotonic()
        try:
            for step in pipeline.run(left):
                if step.concerned:
                    self._metrics.step_done(time.monotonic() - begun_at)
                    self._log.applied(step.number, view.generation, step.participants)
                else:
                    self._metrics.step_skipped()
                self._metrics.step_begins()
                begun_at = time.monotonic()
                self._step_done(step.number + 1, step.loss, view.generation)
        except Interrupted:
            self._progress.steps_dropped(pipeline.num_under_way)
            self._metrics.steps_dropped(pipeline.num_under_way)
            raise
        finally:
            pipeline.drop()

    def _step_done(self, next_step: int, loss: float | None, generation: int) -> None:
        """Take note that all steps before `next_step` are done."""
        self._at_step(next_step)
        self._display.step_done(next_step, loss)
        every = self.record.settings.checkpoint_every
        if next_step % every == 0 or next_step == self.num_training_steps:
            self._checkpoint(next_step, generation)

    def _prepared(self, context: StepContext, number: int, participants: int) -> NumberedStep:
        """Ready a step as far as that is possible before it begins."""
        if self._unmasked is not None:
            self._unmasked.look(participants)
        scheduled = self._timeline.step(number)
        if (exchange := scheduled.exchange) is not None:
            own_key = self._state.own_key()
            other = partial(exchange_step, context, exchange, number, participants, own_key)
            return NumberedStep(number, participants, other=other)
        assert scheduled.batch is not None
        plan = self._learner.plan(scheduled.batch, context.alignment, participants)
        if plan is None:
            return NumberedStep(number, participants)
        if scheduled.kind == "alone":
            alone = partial(self._train_alone, context, plan, scheduled.progress)
            return NumberedStep(number, participants, other=alone)
        inputs = StepInputs.of(context, plan)
        return NumberedStep(number, participants, TrainingStep(context, inputs, scheduled.progress))

    def _train_alone(self, context: StepContext, plan: Plan, progress: float) -> bool:
        self._learner.train_alone(context.inputs(plan), plan, progress)
        return True

    def _evaluate(self, view: MemberView, transport: StepTransport) -> None:
        """Score what this client predicts; batches that the others have done it does alone."""
        context, me = self._context("test", transport), self._learner.context.client
        while self._num_evaluated < len(self._tests):
            self._begin_step(transport)
            number = self.num_training_steps + self._num_evaluated
            participants = view.participants(number)
            if number < view.my_next_step:
                participants = mask_of([me])
            step = self._tests[self._num_evaluated]
            evaluate_step(context, step, participants, self._evaluation)
            self._num_evaluated += 1
            self._at_step(max(self.next_step, number + 1))

    def _begin_step(self, transport: StepTransport) -> None:
        """A step of own samples alone waits for nobody, and still is progress."""
        self._progress.starts_phase()
        transport.check()
        if self._pausing.is_set():
            raise Interrupted

    def _checkpoint(self, step: int, generation: int) -> None:
        if self._writer.busy and step < self.num_training_steps:
            return
        self._writer.wait()
        info = {
            "run": self.record.run,
            "client": self._config.name,
            "generation": generation,
        }
        self._writer.submit(step, self._learner.state(), info)

    def _note_checkpoints(self, step: int = 0) -> None:
        self._progress.holds(self._checkpoints.held)
        if step:
            self.note("checkpoint", step=step)

    def _check_learnt(self) -> None:
        """Refuse to make a model of a run in which this client did none of its steps.

        That a coordinator has all others do them is no reason to replace a model that is served.
        """
        if has_learnt(self._log.path):
            return
        everybody = mask_of(range(len(self.record.roster)))
        alignment = self.record.tables["train"]
        for number in range(self.num_training_steps):
            batch = self._timeline.step(number).batch
            if batch is not None and self._learner.plan(batch, alignment, everybody) is not None:
                raise DataError(NOTHING_LEARNT)

    def _write(self) -> None:
        self._check_learnt()
        learner, record = self._learner, self.record
        scores = scores_of(self._evaluation, learner, record.tables["test"], record.roster)
        if self._block.test is None:
            scores = None
        num_steps = min(self.next_step, self.num_training_steps)
        block = self._block
        has_head = has(learner.context.heads, learner.context.client)
        manifest: dict[str, Any] = {
            "release": __version__,
            "federation": self._config.federation,
            "client": self._config.name,
            "roster": record.roster,
            "heads": [record.roster[k] for k in clients_in(learner.context.heads)],
            "addresses": {**self._state.read_addresses(), **self._addresses},
            "num_steps": num_steps,
            "trained_at": time.time(),
            "alignment": record.scheme,
            "training": record.settings.model_dump(),
            "precision": self._config.precision,
            "privacy": self._budget,
            "encoding": block.encoding.to_json(),
            "labels": block.labels.to_json() if block.labels and has_head else None,
            "scores": scores,
            "model": self._own.left_out_of(self._config.model),
        }
        self._writer.wait()
        self._state.write_model(record.run, learner.published, manifest)
        self.is_done = True
        log.info("trained %d steps; the model is in %s", num_steps, self._state.path)


class UnmaskedRows:
    """Warns before gradients leave unmasked, whenever others take part than before.

    A mask of a row takes two other clients with labels that hold it and take part. A client that
    leaves a run takes its masks along, so it is not enough to count once.
    """

    def __init__(
        self, groups: Sequence[Group], context: FederationContext, roster: Sequence[str]
    ) -> None:
        self._groups = groups
        self._context = context
        self._roster = roster
        self._participants: int | None = None

    def look(self, participants: int) -> None:
        """Warn if there are any with these participants, unless the last step had the same."""
        if participants == self._participants:
            return
        self._participants = participants
        num_bare, num_shared = num_unmasked(
            self._groups, self._context.client, self._context.heads, participants
        )
        if num_bare:
            log.warning(
                "for %d of %d shared rows somebody gets this client's gradients unmasked, because "
                "no two others with labels hold them and take part; %s take part now",
                num_bare,
                num_shared,
                subset_name(participants, self._roster).replace(",", ", "),
            )
