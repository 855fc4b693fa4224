"""What an alignment is for, and which tables it is about."""

from enum import Enum
from typing import Literal

Scheme = Literal["ecdh", "hmac"]
"""How ids are compared: points that every client has blinded, or digests under a shared secret."""

TABLES = ("train", "test", "serve")
"""The serving table has everybody whom a client can answer for, whatever file they are in.

Where people are told apart by a number, it is the place in here of the first table that has them.
"""

TABLES_UNFIT = "its tables cannot be used as they are; see its log"
"""What the others are told of a client whose tables are at fault; what is in them is its own."""


class AlignmentPurpose(Enum):
    """What an alignment is for."""

    RUN = "run"
    DRY_RUN = "dry run"
    UNALIGNED_IDS = "newcomers"
    """Called so in histories and metrics."""


def tables_of(purpose: AlignmentPurpose, scheme: Scheme) -> tuple[str, ...]:
    """Return the tables that are aligned. Digests name people by themselves, so serving needs none.

    People who come after the training are in the serving table alone.
    """
    if purpose is AlignmentPurpose.UNALIGNED_IDS:
        return ("serve",)
    if purpose is AlignmentPurpose.RUN and scheme == "hmac":
        return ("train", "test")
    return TABLES


def lists_of(purpose: AlignmentPurpose, scheme: Scheme) -> tuple[str, ...]:
    """Return the tables of which a client submits a list.

    By points it is that of everybody alone; the coordinator is told who is in the other tables.
    """
    return ("serve",) if scheme == "ecdh" else tables_of(purpose, scheme)
