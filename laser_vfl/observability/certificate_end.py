"""Says a week, a day and an hour ahead that this daemon's certificate ends."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC
from typing import Final

from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.security.credentials import Credentials, Material

log = logging.getLogger(__name__)

LOOK_S = 30.0

HOUR_S = 3600.0
AHEAD: Final = (("a week", 168 * HOUR_S), ("a day", 24 * HOUR_S), ("an hour", HOUR_S), ("", 0.0))
"""How long ahead it is said; the last is that it has ended."""


class CertificateEnd:
    """Each notice is given once for each certificate. A daemon that starts late gives the last."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self._serial: int | None = None
        self._num_given = 0

    def look(self, material: Material, now: float) -> None:
        """Give the notice that is due, if there is one."""
        if material.serial != self._serial:
            self._serial, self._num_given = material.serial, 0
        left_s = material.ends_at.timestamp() - now
        num_due = sum(left_s <= ahead_s for _, ahead_s in AHEAD)
        if num_due <= self._num_given:
            return
        self._num_given = num_due
        within, _ = AHEAD[num_due - 1]
        until = material.ends_at.astimezone(UTC).isoformat(timespec="minutes")
        if within:
            log.warning(
                "the certificate ends within %s, at %s; renew it (`laser-vfl certs renew`), and "
                "this daemon takes the new one without a restart",
                within,
                until,
            )
        else:
            log.error("the certificate has ended at %s; nobody accepts it; renew it", until)
        self._audit.note(
            "certificate_ends",
            identity=material.me.uri,
            serial=f"{material.serial:x}",
            until=material.ends_at.isoformat(),
            within=within or "ended",
        )

    async def watch(self, credentials: Credentials, clock: Callable[[], float] = time.time) -> None:
        """Look again and again, for as long as the daemon lives; in plaintext nothing ends."""
        while credentials.material is not None:
            self.look(credentials.material, clock())
            await asyncio.sleep(LOOK_S)
