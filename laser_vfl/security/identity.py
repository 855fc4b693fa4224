"""The identity in a certificate: a coordinator, a client, an application or an operator."""

import re
from dataclasses import dataclass
from typing import Literal

Role = Literal["coordinator", "client", "operator", "application"]

_NAME = "[a-z0-9][a-z0-9_-]{0,63}"
_FORMS: dict[Role, re.Pattern[str]] = {
    "coordinator": re.compile(f"spiffe://(?P<federation>{_NAME})/coordinator"),
    "client": re.compile(f"spiffe://(?P<federation>{_NAME})/client/(?P<name>{_NAME})"),
    "operator": re.compile(f"spiffe://(?P<federation>{_NAME})/operator/(?P<name>{_NAME})"),
    "application": re.compile(
        f"spiffe://(?P<federation>{_NAME})/client/(?P<organisation>{_NAME})"
        f"/application/(?P<name>{_NAME})"
    ),
}


@dataclass(frozen=True)
class Identity:
    """A party of a federation, as the URI in its certificate has it.

    An operator runs the coordinator; an application belongs to the client that `organisation`
    names, and may ask it for predictions.
    """

    federation: str
    role: Role
    name: str = ""
    organisation: str = ""

    @property
    def uri(self) -> str:
        """The SPIFFE id."""
        if self.role == "coordinator":
            return f"spiffe://{self.federation}/coordinator"
        if self.role == "application":
            owner = Identity(self.federation, "client", self.organisation).uri
            return f"{owner}/application/{self.name}"
        return f"spiffe://{self.federation}/{self.role}/{self.name}"

    @property
    def dns(self) -> str:
        """The name under which a daemon is dialled, whatever its address; empty for the others."""
        if self.role == "coordinator":
            return f"coordinator.{self.federation}"
        return f"{self.name}.client.{self.federation}" if self.role == "client" else ""

    @property
    def voucher(self) -> str:
        """The organisation whose authority may sign it, where each organisation has its own."""
        if self.role == "client":
            return self.name
        return self.organisation if self.role == "application" else "coordinator"

    def __str__(self) -> str:
        return self.uri


def parse_identity(uri: str) -> Identity | None:
    """Return whom a SPIFFE id names; None if it is none of ours."""
    for role, form in _FORMS.items():
        if match := form.fullmatch(uri):
            return Identity(role=role, **match.groupdict())
    return None


def coordinator_of(federation: str) -> Identity:
    """Return the identity of a federation's coordinator."""
    return Identity(federation, "coordinator")


def client_of(federation: str, name: str) -> Identity:
    """Return the identity of one of a federation's clients."""
    return Identity(federation, "client", name)
