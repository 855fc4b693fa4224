"""The end of a certificate is said a week, a day and an hour ahead, once each."""

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laser_vfl.observability import certificate_end
from laser_vfl.observability.audit_log import AuditLog
from laser_vfl.observability.certificate_end import CertificateEnd

ENDS = datetime(2030, 5, 1, 12, tzinfo=UTC)
ME = SimpleNamespace(uri="spiffe://churn/client/bank")


def material(serial: int = 1, ends_at: datetime = ENDS) -> Any:
    return SimpleNamespace(serial=serial, ends_at=ends_at, me=ME)


def before(**ahead: float) -> float:
    return (ENDS - timedelta(**ahead)).timestamp()


@pytest.fixture
def audit(tmp_path: Path) -> AuditLog:
    return AuditLog(tmp_path / "audit.jsonl")


def noted(tmp_path: Path) -> list[str]:
    path = tmp_path / "audit.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = [json.loads(line) for line in lines]
    assert {line["event"] for line in found} <= {"certificate_ends"}
    return [line["within"] for line in found]


def test_each_notice_is_given_once(
    audit: AuditLog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    end = CertificateEnd(audit)
    for minutes in range(10 * 24 * 60, -120, -7):
        end.look(material(), before(minutes=minutes))
    assert noted(tmp_path) == ["a week", "a day", "an hour", "ended"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3 + [logging.ERROR]
    assert "within a week, at 2030-05-01T12:00+00:00; renew it" in caplog.text


@pytest.mark.parametrize(
    ("ahead", "within"),
    [
        ({"days": 8}, []),
        ({"days": 7}, ["a week"]),
        ({"hours": 25}, ["a week"]),
        ({"hours": 24}, ["a day"]),
        ({"minutes": 61}, ["a day"]),
        ({"minutes": 60}, ["an hour"]),
        ({"minutes": -1}, ["ended"]),
    ],
)
def test_a_daemon_that_starts_late_says_the_most_pressing(
    ahead: dict[str, float], within: list[str], audit: AuditLog, tmp_path: Path
) -> None:
    end = CertificateEnd(audit)
    for _ in range(3):
        end.look(material(), before(**ahead))
    assert noted(tmp_path) == within


def test_a_new_certificate_has_notices_of_its_own(audit: AuditLog, tmp_path: Path) -> None:
    end = CertificateEnd(audit)
    end.look(material(), before(hours=2))
    end.look(material(2, ENDS + timedelta(days=30)), before(hours=1))
    assert noted(tmp_path) == ["a day"]
    end.look(material(2, ENDS + timedelta(days=30)), before(days=-29, hours=-12))
    assert noted(tmp_path) == ["a day", "a day"]


def test_it_is_looked_at_from_the_start_on(
    audit: AuditLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_end, "LOOK_S", 0.0)
    times = iter([before(days=9), before(days=6), before(hours=3), before(minutes=5)])
    credentials: Any = SimpleNamespace(material=material())

    def clock() -> float:
        now = next(times, None)
        if now is None:
            credentials.material = None
        return now or before(minutes=4)

    async def watch() -> None:
        async with asyncio.timeout(5):
            await CertificateEnd(audit).watch(credentials, clock)

    asyncio.run(watch())
    assert noted(tmp_path) == ["a week", "a day", "an hour"]
