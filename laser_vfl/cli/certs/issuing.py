"""`certs init | issue | request | renew`: making authorities, certificates and requests."""

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import typer

from laser_vfl.cli.certs.showing import facts, pem_files
from laser_vfl.cli.option_parsers import parse_days
from laser_vfl.core.errors import ConfigError, IdentityError
from laser_vfl.security.certificate_files import (
    file_name,
    init_authority,
    issue,
    load_authority,
    renew,
    sign_request,
    write_request,
)
from laser_vfl.security.certificates import Certificate, read_certificate
from laser_vfl.security.identity import Identity, client_of, coordinator_of
from laser_vfl.security.signing_requests import read_request


@dataclass(frozen=True)
class PartyOptions:
    """The options that say for which parties a certificate is."""

    coordinator: bool
    client: str | None
    operator: str | None
    application: str | None
    of: str | None
    everybody: str | None = None

    def identities(self, federation: str) -> list[Identity]:
        """Return the parties that the options name, if any."""
        if (self.application is None) != (self.of is None):
            raise ConfigError(
                "an application is one of a client", hint="give --application and --of together"
            )
        found: list[list[Identity]] = []
        if self.coordinator:
            found.append([coordinator_of(federation)])
        if self.client is not None:
            found.append([client_of(federation, self.client)])
        if self.operator is not None:
            found.append([Identity(federation, "operator", self.operator)])
        if self.application is not None:
            found.append([Identity(federation, "application", self.application, self.of or "")])
        if self.everybody is not None:
            names = dict.fromkeys(name.strip() for name in self.everybody.split(","))
            clients = [client_of(federation, name) for name in names]
            found.append([coordinator_of(federation), *clients])
        if len(found) > 1:
            raise _unclear_party("too many options")
        return found[0] if found else []

    def some(self, federation: str) -> list[Identity]:
        """Return the parties that the options name; refuse none."""
        identities = self.identities(federation)
        if not identities:
            raise _unclear_party("whom is it for?")
        return identities


def run_init(
    directory: Path, federation: str, organisation: str, days: int, *, as_json: bool
) -> None:
    """Make an authority."""
    now = datetime.now(UTC)
    init_authority(directory, federation, organisation, days=days, now=now)
    _print_made([directory / "ca.pem"], now, as_json=as_json)


def run_issue(
    directory: Path, party: PartyOptions, out: Path | None, days: int, *, as_json: bool
) -> None:
    """Make certificates with keys."""
    if out is not None:
        raise ConfigError(
            "--out is for a request", hint="give --csr, or leave --out out: files go to --dir"
        )
    authority = load_authority(directory)
    now = datetime.now(UTC)
    identities = party.some(authority.federation)
    paths = issue(authority, directory, identities, days=days, now=now)
    _print_made(paths, now, as_json=as_json)


def run_sign(
    directory: Path, party: PartyOptions, csr: Path, out: Path | None, days: int, *, as_json: bool
) -> None:
    """Sign a request; unless options say whom it has to name, a person is asked first."""
    authority = load_authority(directory)
    request = read_request(csr)
    expected = party.identities(authority.federation)
    if expected and expected != [request.identity]:
        raise IdentityError(
            f"names {request.identity}, not {expected[0]}",
            where=str(csr),
            hint="ask whoever sent it",
        )
    if not expected and not sys.stdin.isatty():
        raise ConfigError(
            f"names {request.identity}, and nobody is at a terminal to say whether that is right",
            where=str(csr),
            hint="say beside --csr whom it has to name, such as --client bank",
        )
    print(f"{csr} names {request.identity}, key {request.fingerprint}", file=sys.stderr)
    if not expected:
        typer.confirm("Sign it?", abort=True, err=True)
    now = datetime.now(UTC)
    path = out or directory / f"{file_name(request.identity)}.pem"
    sign_request(authority, request, path, days=days, now=now)
    _print_made([path], now, as_json=as_json)


def run_request(out: Path, federation: str, party: PartyOptions, *, as_json: bool) -> None:
    """Make a key and a request."""
    (identity,) = party.some(federation)
    path = write_request(out, identity)
    fingerprint = read_request(path).fingerprint
    if as_json:
        print(json.dumps({"file": str(path), "identity": identity.uri, "key": fingerprint}))
    else:
        print(f"{path}: names {identity}, key {fingerprint}")
        print("have it signed with `laser-vfl certs issue --csr`; the key stays here")


def run_renew(
    directory: Path, names: list[str], within: str | None, days: int, *, as_json: bool
) -> None:
    """Make certificates anew, with new keys."""
    if not names and within is None:
        raise ConfigError("what is to be renewed?", hint="give names such as bank, or --within 10d")
    now = datetime.now(UTC)
    authority = load_authority(directory)
    if names:
        due = [_named(directory, name) for name in dict.fromkeys(names)]
    else:
        due = [each for each in map(read_certificate, pem_files(directory)) if _is_party(each)]
    if within is not None:
        end = now + parse_days(within, "--within")
        due = [each for each in due if each.not_after <= end]
    here = [each for each in due if each.path.with_suffix(".key").exists()]
    identities = [each.identity for each in here if each.identity]
    renewed = renew(authority, directory, identities, days=days, now=now)
    _print_made(renewed, now, as_json=as_json)
    if elsewhere := [str(each.path) for each in due if each not in here]:
        raise IdentityError(
            "cannot be renewed here, because the key is elsewhere",
            where=", ".join(elsewhere),
            hint="make a new request there with `laser-vfl certs request`",
        )


def _named(directory: Path, name: str) -> Certificate:
    certificate = read_certificate(directory / f"{name}.pem")
    if not _is_party(certificate):
        raise IdentityError(
            "is not the certificate of a party by that name",
            where=str(certificate.path),
            hint="`laser-vfl certs show` says whom it names",
        )
    return certificate


def _is_party(certificate: Certificate) -> bool:
    """Tell whether a certificate is a party's, in a file named after it."""
    identity = certificate.identity
    return identity is not None and certificate.path.stem == file_name(identity)


def _print_made(paths: list[Path], now: datetime, *, as_json: bool) -> None:
    made = [facts(read_certificate(path), now) for path in paths]
    if as_json:
        print(json.dumps({"certificates": made}, ensure_ascii=False))
    for each in [] if as_json else made:
        print(f"{each['file']}: {each['identity'] or each['subject']}, until {each['not_after']}")


def _unclear_party(message: str) -> ConfigError:
    return ConfigError(
        message, hint="give one of --coordinator, --client, --operator and --application (or --all)"
    )
