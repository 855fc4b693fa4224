"""What an alignment is for, and which tables it is about."""

from enum import Enum
from typing import Literal

Scheme = Literal["ecdh", "hmac"]
"""How ids are compared: points that every client has blinded, or digests under a shared secret."""

TABLES = ("train", "test", "serve")
"""The serving table has everybody whom a client can answer for, whatever file they are in."""

TABLES_UNFIT = "its tables cannot be used as they are; see its log"
"""What the others are told of a client whose tables are at fault; what is in them is its own."""


class Purpose(Enum):
    """What an alignment is for."""

    RUN = "run"
    DRY_RUN = "dry run"
    NEWCOMERS = "newcomers"


def tables_of(purpose: Purpose, scheme: Scheme) -> tuple[str, ...]:
    """Return the tables that are aligned. Digests name people by themselves, so serving needs none.

    People who come after the training are in the serving table alone.
    """
    if purpose is Purpose.NEWCOMERS:
        return ("serve",)
    if purpose is Purpose.RUN and scheme == "hmac":
        return ("train", "test")
    return TABLES
