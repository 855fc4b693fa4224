"""What others hear of a failure here: a sentence and a code, whatever the error says."""

import asyncio
import re
from types import SimpleNamespace

import pytest

from laser_vfl.client.daemon import ClientDaemon
from laser_vfl.client.session.coordinator_session import RunStopped
from laser_vfl.client.session.failure_notices import failure_notice
from laser_vfl.core import errors
from laser_vfl.core.errors import DataError, LaserError

DETAILS = 'bank_train.csv: row 12 of "salary" is 83.5, of person-00007'
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, LaserError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_of_an_error_is_told_but_its_kind(kind):
    sentence = failure_notice(kind(DETAILS, hint=DETAILS))
    assert re.fullmatch(r"[a-z ]+; see its log \(code [0-9]+\)", sentence), sentence
    assert sentence.endswith(f"(code {kind.exit_code.value})")
    assert failure_notice(kind("other")) == sentence


def test_a_bug_is_told_like_any_other_failure():
    assert failure_notice(KeyError("salary")) == "it failed; see its log (code 70)"


@pytest.mark.parametrize(
    ("error", "farewell", "problem"),
    [
        (DataError(DETAILS), failure_notice(DataError("")), failure_notice(DataError(""))),
        (RunStopped(DETAILS, run="run-1"), failure_notice(RunStopped("", run="")), ""),
        (KeyError("salary"), "it failed; see its log (code 70)", None),
        (asyncio.CancelledError(), "it was stopped", ""),
    ],
    ids=["data", "ended by the coordinator", "a bug", "a signal"],
)
def test_a_daemon_that_ends_says_so(error, farewell, problem):
    said = []

    async def close(*words):
        said.extend(words)

    async def end():
        daemon = ClientDaemon(SimpleNamespace(), insecure=True)
        daemon._session = SimpleNamespace(close=close)
        await daemon.__aexit__(type(error), error, None)

    asyncio.run(end())
    assert said == [farewell, farewell if problem is None else problem]
