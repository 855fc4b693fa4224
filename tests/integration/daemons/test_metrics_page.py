"""The metrics page under visitors of all kinds; whatever they do, it answers the next one."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest
from prometheus_client import Gauge
from prometheus_client.parser import text_string_to_metric_families

from laser_vfl.core.errors import AddressError
from laser_vfl.observability import metrics_page
from laser_vfl.observability.metric_definitions import registry_of
from laser_vfl.observability.metrics_page import MAX_HEAD_BYTES, MAX_VISITS, MetricsPage

GOOD = b"GET /metrics HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n"
HEAD = b"HEAD /metrics HTTP/1.1\r\n\r\n"
QUICKLY_S = 5.0


@contextlib.asynccontextmanager
async def serving(*instruments: Gauge) -> AsyncIterator[MetricsPage]:
    page = MetricsPage(registry_of(*instruments))
    await page.start("127.0.0.1", 0)
    try:
        yield page
    finally:
        await page.stop()


async def visit(page: MetricsPage) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = page.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def answer(page: MetricsPage, question: bytes) -> tuple[str, bytes]:
    """Ask, and read to the end: the status and the body."""
    reader, writer = await visit(page)
    try:
        async with asyncio.timeout(QUICKLY_S):
            writer.write(question)
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    return head.decode().partition("\r\n")[0].removeprefix("HTTP/1.1 "), body


def test_it_tells_all_that_is_measured() -> None:
    async def ask() -> tuple[str, bytes]:
        gauge = Gauge("laser_vfl_example", "An example", registry=None)
        gauge.set(42)
        async with serving(gauge) as page:
            return await answer(page, GOOD)

    status, body = asyncio.run(ask())
    assert status == "200 OK"
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert names > {"laser_vfl_example", "process_resident_memory_bytes"}
    assert b"laser_vfl_example 42.0\n" in body


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", "200 OK"),
        (HEAD, "200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n", "405 Method Not Allowed"),
        (b"\x16\x03\x01\x02\x00\x01\xfc\r\n\r\n", "400 Bad Request"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400 Bad Request"),
        (b"\r\n\r\n", "400 Bad Request"),
        (b"GET /" + b"a" * (3 * MAX_HEAD_BYTES), "431 Request Header Fields Too Large"),
    ],
)
def test_every_question_has_an_answer(question: bytes, status: str) -> None:
    async def ask() -> tuple[str, bytes]:
        async with serving() as page:
            return await answer(page, question)

    found, body = asyncio.run(ask())
    assert found == status
    assert (body == b"") == question.startswith(b"HEAD")


def test_who_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "VISIT_S", 0.2)

    async def wait() -> bytes:
        async with serving() as page:
            reader, writer = await visit(page)
            writer.write(b"GET /metrics HTTP/1.1\r\nX: ")
            try:
                async with asyncio.timeout(QUICKLY_S):
                    return await reader.read()
            finally:
                writer.close()

    with contextlib.suppress(ConnectionResetError):
        assert asyncio.run(wait()) == b""


def test_who_does_not_read_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_page, "VISIT_S", 1.0)

    async def ask() -> None:
        gauge = Gauge("laser_vfl_large", "A page that no buffer takes", ["label"], registry=None)
        gauge.labels("x" * 20_000_000)
        async with serving(gauge) as page:
            reader, writer = await visit(page)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(GOOD)
            await answer(page, HEAD)  # so the one before has come, too
            done, left = await asyncio.wait(list(page._visits), timeout=10)
            assert (len(done), left) == (1, set())
            writer.transport.abort()

    asyncio.run(ask())


def test_many_who_stay_keep_nobody_out() -> None:
    async def crowd() -> int:
        async with serving() as page:
            visitors = [await visit(page) for _ in range(10 * MAX_VISITS)]
            for _, writer in visitors:
                writer.write(b"GET /metrics HTTP/1.1\r\n")
            for _ in range(5):
                status, _ = await answer(page, GOOD)
                assert status == "200 OK"
            num_visits = len(page._visits)
            for _, writer in visitors:
                writer.transport.abort()
            return num_visits

    assert asyncio.run(crowd()) <= MAX_VISITS


def test_a_page_that_fails_is_tried_and_told_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Gauge):
        def collect(self):  # type: ignore[no-untyped-def]
            raise RuntimeError("no")

    async def ask() -> None:
        page = MetricsPage(Broken("a", "b", registry=None), lambda: 100.0)
        await page.start("127.0.0.1", 0)
        for _ in range(20):
            assert (await answer(page, GOOD))[0] == "500 Internal Server Error"
        await page.stop()

    asyncio.run(ask())
    assert len(caplog.records) == 1


def test_who_asks_without_end_has_few_pages_made() -> None:
    made = 0

    class Source(Gauge):
        def collect(self):  # type: ignore[no-untyped-def]
            nonlocal made
            made += 1
            return super().collect()

    async def ask() -> None:
        now = 100.0
        page = MetricsPage(registry_of(Source("a", "b", registry=None)), lambda: now)
        await page.start("127.0.0.1", 0)
        nonlocal made
        made = 0
        for _ in range(20):
            assert (await answer(page, GOOD))[0] == "200 OK"
        assert made == 1
        now += 1.0
        await answer(page, GOOD)
        assert made == 2
        await page.stop()

    asyncio.run(ask())


def test_a_source_that_fails_is_logged_and_told(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Gauge):
        is_broken = False

        def collect(self):  # type: ignore[no-untyped-def]
            if self.is_broken:
                raise RuntimeError("a secret of ours")
            return super().collect()

    async def ask() -> tuple[str, bytes]:
        source = Broken("a", "b", registry=None)
        async with serving(source) as page:
            source.is_broken = True
            return await answer(page, GOOD)

    status, body = asyncio.run(ask())
    assert status == "500 Internal Server Error"
    assert b"secret" not in body
    assert "cannot be told" in caplog.text


def test_it_stops_at_once_whoever_is_there() -> None:
    async def stop() -> float:
        async with serving() as page:
            _, writer = await visit(page)
            await answer(page, HEAD)
            assert len(page._visits) == 1
            begun_at = time.monotonic()
        took_s = time.monotonic() - begun_at
        writer.transport.abort()
        with pytest.raises(OSError, match="Connect call failed"):
            await visit(page)
        return took_s

    assert asyncio.run(stop()) < QUICKLY_S


@pytest.mark.parametrize("host", ["203.0.113.77", "no-such-host.invalid", "a" * 64])
def test_an_address_of_somebody_else_is_an_error_for_a_person(host: str) -> None:
    async def start() -> None:
        await MetricsPage(registry_of()).start(host, 0)

    with pytest.raises(AddressError, match="cannot listen on") as raised:
        asyncio.run(start())
    assert "`metrics_listen`" in raised.value.hint
