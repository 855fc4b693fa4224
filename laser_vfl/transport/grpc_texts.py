"""What gRPC tells in words alone, in one place.

For each of these gRPC has the same status code, UNAVAILABLE or RESOURCE_EXHAUSTED, as for other
causes, or it only writes a line to its log. So its wording has to be looked at. Nothing else in the
project decides by the text of a message: `config/document.py` and `data/files.py` read a library's
words only to explain an error. A test against real connections notices when a release of gRPC
changes one of these.
"""

import logging

LOGGER = logging.getLogger("grpc._cython.cygrpc")
"""Where gRPC's asyncio part logs."""

_WRONG_NAME = "Hostname Verification Check failed"
_HANDSHAKE = "handshake failed"
_HUNG_UP = "Socket closed"
_TOO_LARGE = ("Received message larger than max", "Decompressed message larger than max")
_ABOVE_LIMIT = "larger than max"
_READ_FAILED = "Failed to receive any message from Core"


def has_wrong_name(details: str) -> bool:
    """Whether the other side has a certificate of another name than the one that was dialled."""
    return _WRONG_NAME in details


def is_tls_failure(details: str) -> bool:
    """Whether there was no TLS connection; gRPC has no code of its own for that."""
    return _HANDSHAKE in details.lower() or has_wrong_name(details)


def has_hung_up(details: str) -> bool:
    """Whether the other side accepted the connection and closed it.

    With TLS 1.3 that is how a server ends a connection whose certificate it does not take, which
    the caller hears as if the server had gone away.
    """
    return _HUNG_UP in details


def is_too_large(details: str) -> bool:
    """Whether a message that came was above the limit, and not one that was to be sent."""
    return any(text in details for text in _TOO_LARGE)


def exceeds_limit(details: str) -> bool:
    """Whether a message was above the limit of either side; a caller's rate limit is not."""
    return _ABOVE_LIMIT in details


def says_read_failed(record: logging.LogRecord) -> bool:
    """Whether gRPC could not read a message, as opposed to that there was none."""
    return str(record.msg).startswith(_READ_FAILED)
