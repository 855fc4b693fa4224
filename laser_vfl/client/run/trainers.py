"""How this client makes the trainer of a run: its models, its settings, its state directory."""

from dataclasses import dataclass
from functools import partial

import torch

from laser_vfl.client.client_metrics import ClientMetrics
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.model_building import build_learner, build_models
from laser_vfl.client.own_models import OwnModels
from laser_vfl.client.privacy_ledger import PrivacyLedger
from laser_vfl.client.session.coordinator_session import RegistrationReply
from laser_vfl.client.session.progress import Progress
from laser_vfl.client.storage.run_record import RunRecord
from laser_vfl.client.storage.state_directory import StateDirectory
from laser_vfl.client.tables.block import Block
from laser_vfl.client.training.trainer import Trainer
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.training.learner import Learner


@dataclass(frozen=True)
class Trainers:
    """Builds models. That takes time, so it is for a worker thread."""

    config: ClientConfig
    own: OwnModels
    device: torch.device
    state: StateDirectory
    progress: Progress
    metrics: ClientMetrics
    spent: PrivacyLedger

    def check(self, reply: RegistrationReply, block: Block) -> None:
        """Raise unless this client's models fit what the federation demands."""
        me = reply.roster.index(self.config.name)
        # Whether others have labels does not matter here.
        heads = 1 << me if block.labels is not None else 0
        context = FederationContext(me, len(reply.roster), heads, reply.settings)
        build_models(self.config, block, context, self.own)

    def trainer(self, record: RunRecord, block: Block, *, is_new: bool) -> Trainer:
        """Return the trainer of a run that was just aligned, or that this client comes back to."""
        heads = record.heads
        if not heads and block.labels is not None:
            # The run is over, and only this client's own head matters.
            heads = (self.config.name,)

        def build() -> Learner:
            return build_learner(
                self.config,
                block,
                record.settings,
                record.roster,
                heads,
                self.device,
                self.own,
                alignment=record.tables["train"],
                own_key=self.state.own_key(),
            )

        trainer = Trainer(
            self.config,
            block,
            record,
            build,
            self.state,
            self.own,
            self.progress,
            self.metrics,
            partial(self.spent.charge_again, record.run, record.settings),
        )
        if is_new:
            trainer.start_new()
        if self.state.has_model(record.run):
            trainer.adopt_model()
        return trainer
