"""A directory of certificates: ca.pem and ca.key, and a .pem and a .key for each party."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from laser_vfl.atomic_files import NewFile
from laser_vfl.core.errors import LaserError
from laser_vfl.security.authority import (
    AUTHORITY_DAYS,
    PARTY_DAYS,
    Authority,
    certificate_pem,
    check_identity,
    key_pem,
    known_authority,
    new_authority,
    new_key,
)
from laser_vfl.security.certificates import read_certificate, read_key, read_pem
from laser_vfl.security.identity import Identity, client_of, coordinator_of
from laser_vfl.security.key_files import (
    PRIVATE,
    PUBLIC,
    new_file,
    refuse_existing,
    write_together,
)
from laser_vfl.security.signing_requests import SigningRequest, request_pem

AUTHORITY = "ca"


def init_authority(
    directory: Path,
    federation: str,
    organisation: str = "",
    *,
    days: int = AUTHORITY_DAYS,
    now: datetime,
) -> Authority:
    """Make an authority in a directory that has none yet."""
    authority = new_authority(federation, organisation, days, now)
    refuse_existing(
        _pair(directory, AUTHORITY), "an authority is never replaced; use another --dir"
    )
    write_together(_pair_files(directory, AUTHORITY, authority.certificate, key_pem(authority.key)))
    return authority


def load_authority(directory: Path) -> Authority:
    """Return the authority in a directory."""
    cert_path, key_path = _pair(directory, AUTHORITY)
    read_certificate(cert_path)  # says in plain words what is wrong with the file
    certificate = x509.load_pem_x509_certificate(read_pem(cert_path))
    try:
        return known_authority(certificate, read_key(key_path))
    except LaserError as error:
        error.where = error.where or str(cert_path)
        raise


def issue(
    authority: Authority,
    directory: Path,
    identities: Sequence[Identity],
    *,
    days: int = PARTY_DAYS,
    now: datetime,
) -> list[Path]:
    """Make a key and a certificate for each party; return the certificates' files."""
    for identity in identities:
        name = file_name(identity)
        hint = f"`laser-vfl certs renew --dir {directory} {name}` replaces it"
        refuse_existing(_pair(directory, name), hint)
    return renew(authority, directory, identities, days=days, now=now)


def renew(
    authority: Authority,
    directory: Path,
    identities: Sequence[Identity],
    *,
    days: int = PARTY_DAYS,
    now: datetime,
) -> list[Path]:
    """Make a new key and a new certificate for each party, in place of what it has."""
    files: list[NewFile] = []
    for identity in identities:
        key = new_key()
        certificate = authority.vouch(identity, key.public_key(), days, now)
        files += _pair_files(directory, file_name(identity), certificate, key_pem(key))
    write_together(files)
    return [_pair(directory, file_name(identity))[0] for identity in identities]


def write_request(directory: Path, identity: Identity) -> Path:
    """Make a key and a request for a certificate; return the file of the request."""
    check_identity(identity)
    name = file_name(identity)
    key_path, path = directory / f"{name}.key", directory / f"{name}.csr"
    refuse_existing((key_path, path), "use another --out, and move the files when signed")
    key = new_key()
    write_together(
        [
            new_file(key_path, key_pem(key), PRIVATE),
            new_file(path, request_pem(identity, key), PUBLIC),
        ]
    )
    return path


def sign_request(
    authority: Authority,
    request: SigningRequest,
    path: Path,
    *,
    days: int = PARTY_DAYS,
    now: datetime,
) -> None:
    """Write the certificate that a request asks for."""
    refuse_existing((path,), "write it to another file with --out")
    certificate = authority.vouch(request.identity, request.key, days, now)
    write_together([new_file(path, certificate_pem(certificate), PUBLIC)])


def make_federation(directory: Path, federation: str, clients: Iterable[str]) -> None:
    """Make an authority, and certificates for a coordinator and clients, in one directory."""
    now = datetime.now(UTC)
    authority = init_authority(directory, federation, now=now)
    daemons = [coordinator_of(federation), *(client_of(federation, name) for name in clients)]
    issue(authority, directory, daemons, now=now)


def file_name(identity: Identity) -> str:
    """Return the name of a party's files, without the ending."""
    match identity.role:
        case "coordinator":
            return "coordinator"
        case "client":
            return identity.name
        case "operator":
            return f"operator-{identity.name}"
        case "application":
            return f"{identity.organisation}-{identity.name}"


def _pair(directory: Path, name: str) -> tuple[Path, Path]:
    """Return the files of a certificate and its key."""
    return directory / f"{name}.pem", directory / f"{name}.key"


def _pair_files(
    directory: Path, name: str, certificate: x509.Certificate, key: bytes
) -> list[NewFile]:
    cert_path, key_path = _pair(directory, name)
    return [
        new_file(key_path, key, PRIVATE),
        new_file(cert_path, certificate_pem(certificate), PUBLIC),
    ]
