"""What has to hold before this client takes part in a run: requirements, its secret, its noise."""

import asyncio
import logging

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.privacy_ledger import PrivacyLedger
from laser_vfl.client.run.requirements import check_required
from laser_vfl.client.session.coordinator_session import RegistrationReply
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.core.alignment_purpose import Scheme
from laser_vfl.core.errors import MismatchError
from laser_vfl.methods.training_settings import TrainingSettings

log = logging.getLogger(__name__)


class RunChecks:
    """Each check raises what is wrong. ε is computed and written in a worker thread."""

    def __init__(self, config: ClientConfig, spent: PrivacyLedger) -> None:
        self._config = config
        self._spent = spent

    async def check_terms(self, reply: RegistrationReply) -> None:
        """Check what the coordinator demands, for a client that has spent nothing yet."""
        check_required(self._config, reply.settings, reply.scheme, reply.roster)
        await asyncio.to_thread(self._spent.check_possible, reply.settings)

    def check_scheme(self, scheme: Scheme) -> None:
        """Check that this client can compare ids as the federation does."""
        if scheme != "hmac":
            return
        if self._config.id_secret_file is None:
            raise MismatchError(
                "this federation compares ids under a shared secret (alignment: hmac)",
                where=self._config.where("name"),
                hint="add id_secret_file, with the secret that all its clients have",
            )
        log.warning("ids are compared under the secret that all clients share, not by ecdh")

    def check_record(self, record: RunRecord) -> None:
        """Check a run that this client could come back to against its requirements of now."""
        check_required(self._config, record.settings, record.scheme, record.roster)

    def is_charged(self, run: str) -> bool:
        """Tell whether the noise of a run is counted."""
        return self._spent.has(run)

    async def check_spent(self, settings: TrainingSettings) -> None:
        """Check that the noise of one more run would not be too much."""
        await asyncio.to_thread(self._spent.check, settings)

    async def charge(self, record: RunRecord, *, is_new: bool) -> None:
        """Count the noise of a run that begins."""
        await asyncio.to_thread(self._spent.charge, record.run, record.settings, is_new=is_new)
