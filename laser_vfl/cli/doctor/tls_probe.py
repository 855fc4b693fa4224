"""TLS contexts of Python's ssl, whose errors say what went wrong."""

import ssl
from pathlib import Path

from laser_vfl.core.errors import IdentityError
from laser_vfl.security.credentials import EVERYBODY, CredentialFiles
from laser_vfl.security.identity import Identity

_EXPIRED, _NOT_YET, _PURPOSE, _NOT_PERMITTED = 10, 9, 26, 47
_UNKNOWN_ISSUER = {2, 7, 18, 19, 20, 21, 30}
"""What OpenSSL calls these, in `verify_code`."""


def authority_file(files: CredentialFiles, identity: Identity) -> Path:
    """Return the file of the authority that has to sign the certificate of an identity."""
    trusted = files.trusted
    found = trusted.get(EVERYBODY) or trusted.get(identity.voucher)
    if found is None:
        raise IdentityError(
            f"there is no authority for {identity.voucher} in tls.authorities",
            hint=f"add the certificate of {identity.voucher}'s authority",
        )
    return found


def tls_context(files: CredentialFiles, authority: Path, *, for_server: bool) -> ssl.SSLContext:
    """Return a context of one side of mutual TLS, as daemons use it; names are not compared."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if for_server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(authority)
    # As in gRPC: an authority that is trusted need not be at the root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_cert_chain(files.cert, files.key, password=lambda: "")
    return context


def unverifying_context() -> ssl.SSLContext:
    """Return a context that verifies nothing, to look at the certificate that a server shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    return context


def untrusted(error: ssl.SSLCertVerificationError, whose: str, authority: Path) -> IdentityError:
    """Return the error for a certificate that verification has refused."""
    code = error.verify_code
    if code in _UNKNOWN_ISSUER:
        return IdentityError(
            f"{whose} is not from our authority, {authority}",
            hint="use one that is, or trust the authority that has signed it",
        )
    if code == _EXPIRED:
        return IdentityError(f"{whose} has expired", hint="`laser-vfl certs renew` makes a new one")
    if code == _NOT_YET:
        return IdentityError(f"{whose} is not valid yet", hint="set the clocks of both machines")
    if code == _PURPOSE:
        return IdentityError(
            f"{whose} is not for both servers and clients",
            hint="issue it with `laser-vfl certs issue`",
        )
    if code == _NOT_PERMITTED:
        return IdentityError(
            f"the authority of {whose} may not vouch for that name",
            hint="issue it by the authority of that organisation",
        )
    return IdentityError(f"{whose} is refused: {error.verify_message}", hint="issue a new one")
