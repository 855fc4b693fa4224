"""The client's life: load, build, serve, join, train, evaluate, publish, then stay or leave."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import torch

from laser_vfl.client.artifacts import StateDirectory
from laser_vfl.client.block import Block, build_learner, build_models, load_block
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.device import Host, fair_threads, pick_device
from laser_vfl.client.evaluating import evaluate
from laser_vfl.client.exchange import Exchange
from laser_vfl.client.joining import Joined, join
from laser_vfl.client.links import Links
from laser_vfl.client.mail import Mail
from laser_vfl.client.observer import Observer
from laser_vfl.client.session import Introduction, Session, Welcome
from laser_vfl.client.training import train
from laser_vfl.core.alignment import DIGEST_BYTES
from laser_vfl.core.errors import LaserError, TrainingStopped
from laser_vfl.core.exchange import WIRE_DTYPES
from laser_vfl.core.learner import Learner, load_optimizers
from laser_vfl.core.release import __version__
from laser_vfl.core.schedule import Schedule
from laser_vfl.v1 import coordinator_pb2 as pb
from laser_vfl.wire.credentials import load_credentials, plaintext
from laser_vfl.wire.frames import add_exchange
from laser_vfl.wire.protocol import FRAME_OPTIONS
from laser_vfl.wire.server import open_channel, start_server

log = logging.getLogger(__name__)

VERDICT_GRACE_S = 2.0
"""How long to wait for the coordinator to say why a peer was lost."""

FINISH_GRACE_S = 10.0
"""How long a finished client waits for a coordinator that is gone."""


async def run_client(
    config: ClientConfig,
    *,
    insecure: bool,
    exit_after_training: bool,
    ready: Callable[[str], None],
) -> None:
    """Run one organisation's daemon until it is cancelled, fails, or has trained and may leave."""
    credentials = (
        load_credentials(config.tls.ca, config.tls.cert, config.tls.key)
        if config.tls
        else plaintext(
            {
                "listen": config.listen,
                "advertise": config.advertise,
                "coordinator": config.coordinator,
            },
            allowed=insecure,
        )
    )
    device = pick_device(config.device, where=config.where("device"))
    block = load_block(config)
    state = StateDirectory(config.state, where=config.where("state"))
    load_optimizers()
    links = Links(credentials, FRAME_OPTIONS)
    server = await start_server(
        str(config.listen),
        credentials,
        lambda grpc_server: add_exchange(grpc_server, links.serve),
        FRAME_OPTIONS,
    )
    channel = open_channel(str(config.coordinator), credentials, [])
    session = Session(
        channel,
        Introduction(
            federation=config.federation,
            client=config.name,
            address=str(config.advertise or server.address),
            has_head=block.labels is not None,
        ),
    )
    ready(server.address)
    farewell = ""
    try:
        await _take_part(config, block, device, state, links, session)
        if not exit_after_training:
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        farewell = "it was stopped"
        raise
    except Exception as error:
        farewell = error.message if isinstance(error, LaserError) else "it failed"
        raise
    finally:
        await asyncio.shield(session.close(farewell))
        await asyncio.shield(links.close())
        await asyncio.shield(channel.close())
        await asyncio.shield(server.stop())


async def _take_part(
    config: ClientConfig,
    block: Block,
    device: torch.device,
    state: StateDirectory,
    links: Links,
    session: Session,
) -> None:
    """Join a run, train, evaluate, publish, and stay for the others until all have finished."""

    def accept(welcome: Welcome) -> None:
        build_models(config, block, welcome.settings, welcome.roster.index(config.name))

    none = block.train.digests[:0].reshape(0, DIGEST_BYTES)
    digests = {"train": block.train.digests, "test": block.test.digests if block.test else none}
    joined = await join(session, config.name, digests, accept, config.connect_timeout_s)
    settings, view = joined.welcome.settings, joined.view
    learner = await asyncio.to_thread(
        build_learner, config, block, settings, joined.welcome.roster, view.heads, device
    )
    links.open(view)
    session.report(state=pb.CLIENT_STATE_RUNNING)
    wire_dtype = WIRE_DTYPES[settings.wire_precision]
    mail = Mail(links, view, session, wire_dtype, settings.step_timeout_s)
    work = asyncio.to_thread(_work, config, block, joined, learner, mail, session, state)
    await _unless_stopped(asyncio.create_task(work), session, links)
    await _stay_for_the_others(session)


def _work(
    config: ClientConfig,
    block: Block,
    joined: Joined,
    learner: Learner,
    mail: Mail,
    session: Session,
    state: StateDirectory,
) -> None:
    """Train, evaluate and publish, in a thread of its own; the event loop stays free."""
    torch.set_num_threads(_num_threads(config, joined))
    settings, host, view = joined.welcome.settings, Host(learner.device), joined.view
    training = Exchange(learner, host, mail, view, block.train, joined.alignments["train"])
    schedule = Schedule(
        training.alignment.groups,
        seed=settings.seed,
        batch_size=settings.batch_size,
        batching=settings.batching,
    )
    num_steps = settings.epochs * schedule.steps_per_epoch
    observer = Observer(config.name, state, num_steps, schedule.steps_per_epoch, session, view.run)
    with observer:
        train(training, schedule, observer)
    scores = None
    if block.test is not None:
        testing = Exchange(learner, host, mail, view, block.test, joined.alignments["test"])
        scores = evaluate(testing, block, joined.welcome.roster)
    if scores is not None:
        state.write_scores({"run": view.run, **scores})
    state.write_model(learner.models, _manifest(config, block, joined, num_steps))
    log.info("trained %d steps; the model is in %s", num_steps, config.state / "model")


async def _unless_stopped(work: asyncio.Task[None], session: Session, links: Links) -> None:
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


def _has_failed(task: asyncio.Task[Any]) -> bool:
    return task.done() and task.exception() is not None


async def _stay_for_the_others(session: Session) -> None:
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
        return
    if verdict.HasField("stopped"):
        log.warning("this client has finished, but not all: %s", verdict.stopped.reason)
    else:
        log.info("all clients have finished")


def _num_threads(config: ClientConfig, joined: Joined) -> int:
    if config.threads != "auto":
        return config.threads
    view = joined.view
    everyone = [view.me.address, *(peer.address for peer in view.peers)]
    return fair_threads(view.me.address, everyone)


def _manifest(config: ClientConfig, block: Block, joined: Joined, num_steps: int) -> dict[str, Any]:
    return {
        "release": __version__,
        "federation": config.federation,
        "run": joined.view.run,
        "client": config.name,
        "roster": joined.welcome.roster,
        "heads": joined.view.heads,
        "num_steps": num_steps,
        "training": joined.welcome.settings.model_dump(),
        "model": config.model.model_dump(),
        "encoding": block.encoding.to_json(),
        "labels": block.labels.to_json() if block.labels else None,
    }
