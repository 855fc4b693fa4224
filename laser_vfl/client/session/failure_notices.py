"""What other clients are told of a failure here: a general sentence and a code, no details.

The message of an error may have names of columns and files, numbers of rows, ids or values in it.
It stays in this client's log. The codes are those of docs/exit-codes.
"""

from typing import Final

from laser_vfl.core.alignment_purpose import TABLES_UNFIT
from laser_vfl.core.errors import (
    AddressError,
    ConfigError,
    ContractError,
    DataError,
    ExitCode,
    IdentityError,
    LaserError,
    LimitExceeded,
    MismatchError,
    StateUnwritable,
    TooManyPeople,
    TrainingStopped,
)

STOPPED: Final = "it was stopped"
RUN_LOST: Final = "the run was lost"

_SENTENCES: Final[tuple[tuple[type[LaserError], str], ...]] = (
    (DataError, TABLES_UNFIT),
    (StateUnwritable, "its state directory cannot be written; see its log"),
    (TooManyPeople, "another client brings more people than it takes part with; see its log"),
    (LimitExceeded, "it has reached a limit of its own; see its log"),
    (ConfigError, "its configuration cannot be used as it is; see its log"),
    (MismatchError, "the settings are not what it requires; see its log"),
    (IdentityError, "a certificate is not as it should be; see its log"),
    (AddressError, "it cannot reach another daemon; see its log"),
    (ContractError, "it was sent what the protocol does not allow; see its log"),
    (TrainingStopped, "its training cannot go on; see its log"),
)
"""By kind of error; the first that fits is told."""

_ANYTHING: Final = "it failed; see its log"


def failure_notice(error: BaseException) -> str:
    """Return what the coordinator, and through it all others, are told of an error here."""
    code = error.exit_code if isinstance(error, LaserError) else ExitCode.INTERNAL
    sentences = (text for kind, text in _SENTENCES if isinstance(error, kind))
    return f"{next(sentences, _ANYTHING)} (code {code.value})"
