"""This client in the training of a run: its trainer, and its membership until all are done."""

import asyncio
from collections.abc import Awaitable, Callable

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.peers.peer_network import PeerNetwork
from laser_vfl.client.run.run_member import RunMember
from laser_vfl.client.run.trainers import Trainers
from laser_vfl.client.session.coordinator_session import RegistrationReply, Session
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.client.tables.block import Block
from laser_vfl.client.training.trainer import Trainer
from laser_vfl.client.waiting_times import DEFAULT_TIMES, WaitingTimes
from laser_vfl.core.errors import LaserError
from laser_vfl.observability.audit_log import AuditLog


class RunTraining:
    """Trains in one run after another. The audit log has each of them."""

    def __init__(
        self,
        config: ClientConfig,
        trainers: Trainers,
        session: Session,
        network: PeerNetwork,
        progress: Progress,
        audit: AuditLog,
        times: WaitingTimes = DEFAULT_TIMES,
    ) -> None:
        self.progress = progress
        """What happened in the run under way, or in the last one."""
        self._config = config
        self._trainers = trainers
        self._session = session
        self._network = network
        self._audit = audit
        self._times = times

    async def expect(self, reply: RegistrationReply, block: Block) -> None:
        """Check that the models fit the settings of the next run, and take messages of its size."""
        await asyncio.to_thread(self._trainers.check, reply, block)
        await self._network.expect(reply.settings, len(reply.roster))

    async def trainer(self, record: RunRecord, block: Block, *, is_new: bool) -> Trainer:
        """Return the trainer of a run that was just aligned, or that this client comes back to."""
        return await asyncio.to_thread(self._trainers.trainer, record, block, is_new=is_new)

    async def run(
        self, trainer: Trainer, members: tuple[str, ...], when_done: Callable[[], Awaitable[None]]
    ) -> None:
        """Train until all have finished; `when_done` is called when this client has."""
        run, outcome = trainer.record.run, "left"
        member = RunMember(
            self._config.name,
            trainer,
            self._session,
            self.progress,
            self._network,
            when_done,
            self._config.coordinator_timeout_s,
            self._times,
        )
        self._audit.note("joined", run=run, members=members)
        try:
            await member.run()
            outcome = "finished"
        except LaserError as error:
            outcome = error.message
            raise
        finally:
            self._audit.note("left", run=run, members=self.progress.members, reason=outcome)
