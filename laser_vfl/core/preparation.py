"""Stages that a method has before its heads are trained.

There are two kinds. In an exchange, some clients send rows of the method's own to some others.
After all exchanges come epochs in which each client trains its representation model alone. Most
methods have neither.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import torch
from torch import nn

from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.settings import AlgorithmSettings
from laser_vfl.core.table_form import TableForm

KeyOf = Callable[[int], bytes]
"""Returns the key that a client shares with a peer."""


class ExchangeStep(Protocol):
    """One exchange: every sender sends the same number of rows to every receiver."""

    @property
    def clients(self) -> int:
        """The mask of all clients that are needed for it."""

    @property
    def meeting(self) -> tuple[int, ...]:
        """Clients that wait for each other before they send, so that they have shared keys."""

    @property
    def senders(self) -> tuple[int, ...]:
        """The clients that send."""

    @property
    def receivers(self) -> tuple[int, ...]:
        """The clients that receive. One that also sends keeps its own rows as if received."""

    @property
    def num_rows(self) -> int:
        """How many rows each of them sends; a row is as wide as a representation."""

    @property
    def kind(self) -> Literal["representation", "gradient"]:
        """The kind of frame that has the rows."""

    @property
    def is_acknowledged(self) -> bool:
        """Whether senders wait until the receivers have the rows."""


class PreparationState(nn.Module, ABC):
    """What one client keeps of these stages: in every checkpoint, and in no published model.

    Its parameters have no gradients, so that an optimiser leaves them alone.
    """

    @abstractmethod
    def outgoing(
        self, exchange: ExchangeStep, inputs: torch.Tensor, key_of: KeyOf, own_key: bytes
    ) -> torch.Tensor:
        """Return the rows that this client sends; `inputs` are the features of all its samples."""

    @abstractmethod
    def incoming(self, exchange: ExchangeStep, rows: Mapping[int, torch.Tensor]) -> None:
        """Keep the rows that all senders have sent. Doing it again changes nothing."""


class Preparation:
    """The stages before training; here, none."""

    exchange_stage = ""
    """What the stage of exchanges is called."""
    local_stage = ""
    """What the stage is called in which clients train alone."""

    def exchanges(
        self, settings: AlgorithmSettings, groups: Sequence[Group], num_clients: int
    ) -> Sequence[ExchangeStep]:
        """Return all exchanges of a run, in their order."""
        return ()

    def local_epochs(self, settings: AlgorithmSettings) -> int:
        """Return for how many epochs clients train alone."""
        return 0

    def state(
        self,
        context: FederationContext,
        alignment: ClientAlignment,
        form: TableForm | None = None,
    ) -> PreparationState | None:
        """Build what a client keeps of these stages, before anything has been exchanged.

        `form` says how rows of its block stand in memory; None for rows of several dimensions.
        """
        return None

    def local_loss(
        self,
        representation: nn.Module,
        state: PreparationState,
        inputs: torch.Tensor,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """Return the loss of a batch in the stage in which clients train alone."""
        raise AssertionError("this method has no such stage")
