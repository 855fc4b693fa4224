"""The one root error: what happened, where, what to do, and the exit code it means."""

from enum import IntEnum

MAX_QUOTED = 64


class ExitCode(IntEnum):
    """How a `laser-vfl` process ends; each has a page in docs/exit-codes."""

    OK = 0
    CONFIG = 2
    DATA = 3
    ADDRESS = 4
    IDENTITY = 5
    MISMATCH = 6
    STOPPED = 7
    NOT_READY = 8
    INTERNAL = 70


def printable(text: str) -> str:
    """Return a text as one line that no terminal takes for anything else."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def quoted(text: str) -> str:
    """Return somebody else's text for a message of ours: one line, printable, short."""
    plain = printable(text[:MAX_QUOTED])
    return f'"{plain}…"' if len(text) > MAX_QUOTED else f'"{plain}"'


class LaserError(Exception):
    """An error meant for a person.

    `where` is a place ("bank.yaml:12:3: optimizer.lr"), `message` says what is wrong there,
    `hint` what to do about it.
    """

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, *, hint: str = "", where: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.where = where

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}; {self.hint}" if self.hint else text


class ConfigError(LaserError):
    """The command line or a configuration file is wrong."""

    exit_code = ExitCode.CONFIG


class DataError(LaserError):
    """A table cannot be used as it is."""

    exit_code = ExitCode.DATA


class AddressError(LaserError):
    """An address cannot be bound or reached."""

    exit_code = ExitCode.ADDRESS


class IdentityError(LaserError):
    """A certificate is missing or wrong, or plaintext was not allowed."""

    exit_code = ExitCode.IDENTITY


class MismatchError(LaserError):
    """This client does not fit the federation it wants to join."""

    exit_code = ExitCode.MISMATCH


class NameTaken(MismatchError):
    """Another process is registered under this client's name."""


class NotRegistered(LaserError):
    """The coordinator does not know this process (any more)."""

    exit_code = ExitCode.MISMATCH


class AlignmentOver(LaserError):
    """The alignment that a message is about is not under way (any more)."""

    exit_code = ExitCode.STOPPED


class AlignmentRefused(AlignmentOver):
    """A member could not go on with an alignment, and so it has ended for all."""


class TrainingStopped(LaserError):
    """Training could not go on."""

    exit_code = ExitCode.STOPPED


class StateUnwritable(TrainingStopped):
    """A file of the state directory cannot be written."""


class ContractError(LaserError):
    """A peer sent something that the protocol does not allow."""

    exit_code = ExitCode.STOPPED


class NotReady(LaserError):
    """This daemon cannot answer that, not yet or not at all."""

    exit_code = ExitCode.NOT_READY


class LimitExceeded(LaserError):
    """Too much was asked in too short a time."""

    exit_code = ExitCode.NOT_READY

    def __init__(self, message: str, *, hint: str = "", retry_after_s: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class TooManyPeople(LimitExceeded):
    """Another client brings more people to an alignment than this one takes part with."""
