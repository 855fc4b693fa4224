"""What `doctor` checks of this daemon's certificate, its key and its authorities."""

import math
import ssl
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from laser_vfl.cli.doctor.finding import Finding, failed, ok, warn
from laser_vfl.cli.doctor.tls_probe import authority_file, tls_context, untrusted
from laser_vfl.core.errors import IdentityError, LaserError
from laser_vfl.security.certificates import Certificate, read_certificate, read_certificates
from laser_vfl.security.credentials import CredentialFiles
from laser_vfl.security.identity import Identity

SOON = timedelta(days=7)

NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: expiry is checked and reported separately."""

RENEW = "`laser-vfl certs renew` makes a new one"
SET_CLOCK = "set this machine's clock"


def check_certificate(files: CredentialFiles, me: Identity, now: datetime) -> Iterator[Finding]:
    """Check that a certificate is good for this daemon, here and now."""
    try:
        certificate = read_certificate(files.cert)
        _check_names(certificate, me)
        yield _validity("certificate", certificate, now, str(me))
    except LaserError as error:
        yield failed("certificate", error)
        return
    try:
        if not certificate.key_matches(files.key):
            raise IdentityError(
                "is the key of another certificate",
                where=str(files.key),
                hint="bring the two files of one issue together",
            )
        yield ok("key", f"{files.key}: belongs to the certificate, and is private")
    except LaserError as error:
        yield failed("key", error)
        return
    yield from _check_authorities(files, me, now)


def _check_names(certificate: Certificate, me: Identity) -> None:
    where, hint = str(certificate.path), "use the certificate that was issued for this daemon"
    if certificate.identity != me:
        names = certificate.identity or "nobody of a federation"
        raise IdentityError(f"names {names}, not {me}", where=where, hint=hint)
    if certificate.dns_names != (me.dns,):
        names = ", ".join(certificate.dns_names) or "none"
        raise IdentityError(
            f"has to have the DNS name {me.dns} alone, and has {names}", where=where, hint=hint
        )


def _validity(check: str, certificate: Certificate, now: datetime, whose: str) -> Finding:
    """Return for how long a certificate is good; raises if it is not now."""
    where = str(certificate.path)
    if now < certificate.not_before:
        raise IdentityError(
            f"is valid from {certificate.not_before:%Y-%m-%d %H:%M} UTC on, and here it is "
            f"{now:%Y-%m-%d %H:%M}",
            where=where,
            hint=SET_CLOCK,
        )
    if now > certificate.not_after:
        raise IdentityError(
            f"has expired on {certificate.not_after:%Y-%m-%d %H:%M} UTC", where=where, hint=RENEW
        )
    left = certificate.not_after - now
    message = f"{where}: {whose}, {math.floor(left / timedelta(days=1))} days left"
    return warn(check, message, RENEW) if left < SOON else ok(check, message)


def _check_authorities(files: CredentialFiles, me: Identity, now: datetime) -> Iterator[Finding]:
    for path in files.trusted.values():
        try:
            for authority in read_certificates(path):
                if not authority.is_authority:
                    raise IdentityError(
                        "is no authority's certificate", where=str(path), hint="check tls"
                    )
                yield _validity("authority", authority, now, authority.subject)
        except LaserError as error:
            yield failed("authority", error)
            return
    try:
        own = authority_file(files, me)
    except IdentityError as error:
        yield warn("chain", error.message, error.hint)
        return
    try:
        _handshake_with_itself(files, own)
        yield ok("chain", f"{files.cert}: signed by {own}, for servers and clients")
    except LaserError as error:
        yield failed("chain", error)


def _handshake_with_itself(files: CredentialFiles, authority: Path) -> None:
    """Do a TLS handshake of this certificate with itself, in memory."""
    towards_server, towards_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = []
    try:
        for for_server, (incoming, outgoing) in {
            True: (towards_server, towards_caller),
            False: (towards_caller, towards_server),
        }.items():
            context = tls_context(files, authority, for_server=for_server)
            context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
            ends.append(context.wrap_bio(incoming, outgoing, server_side=for_server))
        waiting = ends[::-1]
        while waiting:
            end = waiting.pop(0)
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(end)
    except ssl.SSLCertVerificationError as error:
        raise untrusted(error, f"the certificate {files.cert}", authority) from None
    except ssl.SSLError as error:
        raise IdentityError(
            f"TLS refuses the certificate ({error.reason})",
            where=str(files.cert),
            hint="issue it with `laser-vfl certs issue`",
        ) from None
