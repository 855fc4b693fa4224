"""What a check of `doctor` has found, and what to do about it."""

from dataclasses import dataclass
from typing import Any, Literal

from laser_vfl.config.text import one_line
from laser_vfl.core.errors import ExitCode, LaserError

Status = Literal["ok", "warn", "FAIL"]

CHECK_WIDTH = 14


@dataclass(frozen=True)
class Finding:
    """One line: how it is, what was checked, and how to repair it."""

    status: Status
    check: str
    message: str
    fix: str = ""
    exit_code: ExitCode = ExitCode.OK

    def __str__(self) -> str:
        fix = f" → {self.fix}" if self.fix else ""
        return one_line(f"{self.status:<5} {self.check:<{CHECK_WIDTH}} {self.message}{fix}")

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "status": self.status,
            "check": self.check,
            "message": self.message,
            "fix": self.fix or None,
            "exit_code": int(self.exit_code),
        }


def ok(check: str, message: str) -> Finding:
    """All is well."""
    return Finding("ok", check, message)


def warn(check: str, message: str, fix: str) -> Finding:
    """It works, and should be looked at."""
    return Finding("warn", check, message, fix)


def failed(check: str, error: LaserError) -> Finding:
    """A daemon would end with this error, or not get through."""
    message = f"{error.where}: {error.message}" if error.where else error.message
    return Finding("FAIL", check, message, error.hint, error.exit_code)
