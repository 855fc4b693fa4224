"""One run at one client: all that outlives a change of members. Its steps run in a thread."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import Block, OwnModels
from laser_vfl.client.checkpoint_writer import CheckpointWriter
from laser_vfl.client.checkpoints import Checkpoints
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import Host, num_threads
from laser_vfl.client.evaluating import begin_evaluation, evaluate_step, scores_of
from laser_vfl.client.exchange import Exchange
from laser_vfl.client.federating import federate_step
from laser_vfl.client.inbox import Interrupted
from laser_vfl.client.mail import Mail, NoMail
from laser_vfl.client.observer import Observer
from laser_vfl.client.privacy_budget import budget
from laser_vfl.client.progress import Progress
from laser_vfl.client.run_record import RunRecord
from laser_vfl.client.step_log import StepLog
from laser_vfl.client.training import train_step
from laser_vfl.client.unmasked import UnmaskedRows
from laser_vfl.client.view import MemberView
from laser_vfl.core.availability import count_samples
from laser_vfl.core.errors import DataError
from laser_vfl.core.learner import Learner
from laser_vfl.core.release import __version__
from laser_vfl.core.schedule import in_order
from laser_vfl.core.subsets import clients_in, has, mask_of
from laser_vfl.core.timeline import Timeline

log = logging.getLogger(__name__)

KEPT_COMPLETE = 2
"""The one that everybody has, and one before it in case a disk spoils it."""

KEPT_LATER = 8
"""Those above it; more of them only pile up when somebody cannot write any."""


class Work:
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
    ) -> None:
        self.record = record
        self.is_done = False
        self.is_loaded = False
        """Whether its state is what it should be for joining a run under way."""
        self.pausing = threading.Event()
        """Set to have it end at the next boundary of a step."""
        self._config = config
        self._block = block
        self._build = build
        self._learner = learner = build()
        self._host = Host(learner.device)
        self._state = state
        self._own = own
        self._progress = progress
        self._meters = progress.meters
        settings = record.settings
        groups = record.tables["train"].groups
        self._timeline = Timeline(settings, groups, len(record.roster))
        self.num_training_steps = self._timeline.num_steps
        self._tests = list(in_order(record.tables["test"].groups, settings.batch_size))
        self._evaluation = begin_evaluation(learner, block, record.tables["test"])
        self._num_evaluated = 0
        directory = state.run_directory(record.run)
        self._log = StepLog(directory / "steps.log")
        self._loaded: int | None = None
        self._budget = budget(config.privacy, settings.epochs)
        self._has_said_what_leaves = False
        self._unmasked: UnmaskedRows | None = None
        if settings.masked_gradients and block.labels is not None:
            self._unmasked = UnmaskedRows(groups, learner.place, record.roster)
        self._addresses: dict[str, str] = {}
        """Where members were last seen."""
        self._checkpoints = Checkpoints(directory / "checkpoints")
        self._writer = CheckpointWriter(self._checkpoints, self._note_checkpoints)
        self._observer = Observer(
            config.name,
            state,
            self.num_training_steps,
            self._timeline.steps_per_epoch,
            progress,
            record.run,
        )
        progress.begin_run(record.roster, self.num_training_steps + len(self._tests))
        progress.samples = count_samples(record.roster, record.tables["train"])
        self._note_checkpoints()

    @property
    def next_step(self) -> int:
        """The first step that is not done, evaluation counted on."""
        return self._progress.next_step

    def note(self, event: str, **fields: Any) -> None:
        """Have it in the metrics that something happened."""
        self._observer.note(event, **fields)

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
        self._progress.next_step = self._loaded = step
        self._num_evaluated = 0
        self.is_loaded = True
        self._note_checkpoints()
        self.note("loaded", step=step)
        log.info("at step %d%s", step, ", from a checkpoint" if found else "")

    def adopt_model(self) -> None:
        """Take the model of this run that a former life has written; nothing is left to do."""
        self.is_done = self.is_loaded = True
        self._progress.next_step = self._progress.num_steps

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

    def run(self, view: MemberView, mail: Mail) -> None:
        """Go on under a view until all is done; Interrupted when it has to stop before."""
        torch.set_num_threads(num_threads(self._config.threads, view.addresses, self._config.name))
        self._addresses |= view.addresses
        self._progress.next_step = max(self.next_step, view.my_next_step)
        self._note_loaded(view.generation)
        self._progress.starts_phase()
        self._observer.goes_on_from(self.next_step)
        with self._observer:
            self._say_what_leaves()
            self._train(view, mail)
        if self._block.test is not None:
            self._evaluate(view, mail)
        self._write()

    def finish_alone(self) -> None:
        """Take what was learnt so far for the model: the others have finished without us."""
        if self.next_step == 0:
            raise DataError("the others have finished, and this client has not learnt anything yet")
        torch.set_num_threads(num_threads(self._config.threads, {}, self._config.name))
        self._note_loaded(None)
        me = mask_of([self._learner.place.client])
        if self._block.test is not None:
            for step in self._tests[self._num_evaluated :]:
                evaluate_step(self._exchange("test", NoMail()), step, me, self._evaluation)
        self._write()

    def close(self) -> None:
        """Let go of threads and files."""
        self._writer.close()
        self._log.close()

    def _note_loaded(self, generation: int | None) -> None:
        if self._loaded is not None:
            self._log.loaded(self._loaded, generation)
            self._loaded = None

    def _exchange(self, table: str, mail: Mail | NoMail) -> Exchange:
        rows = self._block.train if table == "train" else self._block.test
        assert rows is not None
        return Exchange(self._learner, self._host, mail, rows, self.record.tables[table])

    def _say_what_leaves(self) -> None:
        """Tell once of a run what noise is worth."""
        if self._has_said_what_leaves:
            return
        self._has_said_what_leaves = True
        if self._budget is not None and self._budget["noise"]:
            log.info(
                "noise on representations: epsilon %(epsilon_per_release).4g for one release of a "
                "person's features and %(epsilon).4g for the %(num_releases)d of this run, given "
                "the parameters, at delta %(delta)g",
                self._budget,
            )

    def _train(self, view: MemberView, mail: Mail) -> None:
        exchange = self._exchange("train", mail)
        every = self.record.settings.checkpoint_every
        left = range(self.next_step, self.num_training_steps)
        if left and not view.participants(left[-1]) & self._learner.place.heads:
            log.warning("nobody who predicts takes part: the remaining steps change nothing")
        for number in left:
            self._check(mail)
            participants = view.participants(number)
            if self._unmasked is not None:
                self._unmasked.look(participants)
            begun_at = time.monotonic()
            self._meters.step_begins()
            try:
                is_done, loss = self._step(exchange, number, participants)
            except Interrupted:
                self._progress.num_redone += 1
                self._meters.step_dropped()
                raise
            if is_done:
                self._meters.step_done(time.monotonic() - begun_at)
                self._log.applied(number, view.generation, participants)
            else:
                self._meters.step_skipped()
            self._progress.next_step = number + 1
            self._observer.step_done(number + 1, loss)
            if (number + 1) % every == 0 or number + 1 == self.num_training_steps:
                self._checkpoint(number + 1, view.generation)

    def _step(
        self, exchange: Exchange, number: int, participants: int
    ) -> tuple[bool, float | None]:
        """Do a step; return whether anything in it concerned this client, and its head's loss."""
        moment = self._timeline.moment(number)
        if moment.chunk is not None:
            own_key = self._state.own_key()
            return federate_step(exchange, moment.chunk, number, participants, own_key), None
        assert moment.step is not None
        plan = self._learner.plan(moment.step, exchange.alignment, participants)
        if plan is None:
            return False, None
        if moment.stage == "distillation":
            self._learner.distil(exchange.inputs(plan), plan, moment.progress)
            return True, None
        return True, train_step(exchange, plan, moment.progress)

    def _evaluate(self, view: MemberView, mail: Mail) -> None:
        """Score what this client predicts; batches that the others have done it does alone."""
        exchange, me = self._exchange("test", mail), self._learner.place.client
        while self._num_evaluated < len(self._tests):
            self._check(mail)
            number = self.num_training_steps + self._num_evaluated
            participants = view.participants(number)
            if number < view.my_next_step:
                participants = mask_of([me])
            step = self._tests[self._num_evaluated]
            evaluate_step(exchange, step, participants, self._evaluation)
            self._num_evaluated += 1
            self._progress.next_step = max(self.next_step, number + 1)

    def _check(self, mail: Mail) -> None:
        mail.check()
        if self.pausing.is_set():
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
        self._progress.checkpoints = self._checkpoints.held
        if step:
            self.note("checkpoint", step=step)

    def _write(self) -> None:
        learner, record = self._learner, self.record
        scores = scores_of(self._evaluation, learner, record.tables["test"], record.roster)
        if self._block.test is None:
            scores = None
        num_steps = min(self.next_step, self.num_training_steps)
        block = self._block
        has_head = has(learner.place.heads, learner.place.client)
        manifest: dict[str, Any] = {
            "release": __version__,
            "federation": self._config.federation,
            "client": self._config.name,
            "roster": record.roster,
            "heads": [record.roster[k] for k in clients_in(learner.place.heads)],
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
