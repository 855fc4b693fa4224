"""One run at one client: the work in its thread, and what the coordinator has to say meanwhile."""

import asyncio
import logging
import time
from typing import Any

import torch

from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import Block, OwnModels
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import Host, num_threads
from laser_vfl.client.evaluating import evaluate
from laser_vfl.client.exchange import Exchange
from laser_vfl.client.joining import Joined
from laser_vfl.client.links import Links
from laser_vfl.client.mail import Mail
from laser_vfl.client.observer import Observer
from laser_vfl.client.session import Session
from laser_vfl.client.training import train
from laser_vfl.core.errors import LaserError, TrainingStopped
from laser_vfl.core.learner import Learner
from laser_vfl.core.release import __version__
from laser_vfl.core.schedule import Schedule
from laser_vfl.v1 import coordinator_pb2 as pb

log = logging.getLogger(__name__)

VERDICT_GRACE_S = 2.0
"""How long to wait for the coordinator to say why a peer was lost."""

FINISH_GRACE_S = 10.0
"""How long a finished client waits for a coordinator that is gone."""


def train_and_write(
    config: ClientConfig,
    block: Block,
    joined: Joined,
    learner: Learner,
    mail: Mail,
    session: Session,
    state: StateDirectory,
    own: OwnModels,
) -> None:
    """Train, evaluate and write the model, in a thread of its own; the event loop stays free."""
    torch.set_num_threads(num_threads(config.threads, joined.view.addresses, config.name))
    settings, host, view = joined.settings, Host(learner.device), joined.view
    training = Exchange(learner, host, mail, view, block.train, joined.aligned.tables["train"])
    schedule = Schedule(
        training.alignment.groups,
        seed=settings.seed,
        batch_size=settings.batch_size,
        batching=settings.batching,
    )
    session.num_steps = settings.epochs * schedule.steps_per_epoch
    observer = Observer(
        config.name, state, session.num_steps, schedule.steps_per_epoch, session, view.run
    )
    with observer:
        train(training, schedule, observer)
    scores = None
    if block.test is not None:
        testing = Exchange(learner, host, mail, view, block.test, joined.aligned.tables["test"])
        scores = evaluate(testing, block, joined.roster)
    manifest = _manifest(config, block, joined, session.num_steps, scores)
    manifest["model"] = own.left_out_of(config.model)
    state.write_model(view.run, learner.models, manifest)
    log.info("trained %d steps; the model is in %s", session.num_steps, state.path)


async def unless_stopped(work: asyncio.Task[None], session: Session, links: Links) -> None:
    """Wait for the work, unless the coordinator stops the run. Without a coordinator, go on."""
    verdict = asyncio.create_task(session.directive(lambda d: d.HasField("stopped")))
    try:
        await asyncio.wait({work, verdict}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and _has_failed(verdict):
            log.warning("training goes on without the coordinator")
            await asyncio.wait({work})
        if work.done() and isinstance(work.exception(), TrainingStopped):
            await asyncio.wait({verdict}, timeout=VERDICT_GRACE_S)
        if not work.done() or (work.exception() and verdict.done() and not _has_failed(verdict)):
            raise TrainingStopped(
                verdict.result().stopped.reason, hint="see the log of that client"
            )
        work.result()
    finally:
        links.fail(TrainingStopped("this client is stopping"))
        verdict.cancel()
        await asyncio.gather(work, verdict, return_exceptions=True)


async def stay_for_the_others(session: Session) -> bool:
    """Wait until all have finished, or nobody can say it any more; false if the run was stopped."""
    session.report(state=pb.CLIENT_STATE_FINISHED)
    while True:
        try:
            async with asyncio.timeout(FINISH_GRACE_S):
                verdict = await session.directive(
                    lambda d: d.HasField("stopped") or d.HasField("finished")
                )
            break
        except TimeoutError:
            if session.in_touch:
                continue
        except LaserError:
            await asyncio.sleep(FINISH_GRACE_S)
        log.warning("the coordinator is gone or has forgotten this run; nothing to wait for")
        return True
    if verdict.HasField("stopped"):
        log.warning("this client has finished, but not all: %s", verdict.stopped.reason)
        return False
    log.info("all clients have finished")
    return True


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and task.exception() is not None


def _manifest(
    config: ClientConfig,
    block: Block,
    joined: Joined,
    num_steps: int,
    scores: dict[str, Any] | None,
) -> dict[str, Any]:
    return {
        "release": __version__,
        "federation": config.federation,
        "client": config.name,
        "roster": joined.roster,
        "heads": joined.view.heads,
        "addresses": joined.view.addresses,
        "num_steps": num_steps,
        "trained_at": time.time(),
        "alignment": joined.aligned.scheme,
        "training": joined.settings.model_dump(),
        "precision": config.precision,
        "encoding": block.encoding.to_json(),
        "labels": block.labels.to_json() if block.labels else None,
        "scores": scores,
    }
