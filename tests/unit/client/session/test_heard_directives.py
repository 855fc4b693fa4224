"""What a coordinator says in a directive is bounded before this client repeats it."""

import logging
from typing import Any

import pytest

from laser_vfl.client.session.coordinator_session import MAX_NAMED, ClientInfo, Session
from laser_vfl.client.session.progress import Progress
from laser_vfl.v1 import coordinator_pb2 as pb


@pytest.fixture
def session() -> Session:
    channel: Any = None
    return Session(channel, ClientInfo("churn", "bank", "bank:1", has_head=True), Progress())


@pytest.mark.parametrize("phase", ["gathering", "training"])
def test_names_that_are_waited_for_make_one_short_line(
    phase: str, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    directive = pb.Directive()
    names = ["shop\n2026-01-01 ERROR bank: forged \x1b[2J", *("x" * 1000 for _ in range(1000))]
    getattr(directive, phase).waiting_for.extend(names)
    with caplog.at_level(logging.INFO):
        session._hear(directive)
    (message,) = caplog.messages
    assert message.isprintable()
    assert len(message) < MAX_NAMED + 100
