"""Whatever a daemon reads: nothing that others can write makes it crash, hang or grow."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from coordinator_targets import TARGETS as CALLS
from file_targets import TARGETS as FILES
from fuzzing import CASES, SEED, TOTAL_S, Crashed, Target, fuzz, run_checked
from hypothesis import strategies as st
from message_targets import TARGETS as MESSAGES
from peer_call_targets import TARGETS as PEERS
from session_targets import TARGETS as SESSION
from state_targets import TARGETS as STATE

from laser_vfl.v1 import coordinator_pb2, peer_pb2, prediction_pb2

TARGETS = [*STATE, *FILES, *MESSAGES, *CALLS, *SESSION, *PEERS]
SHARES = sum(target.share for target in TARGETS)

pytestmark = pytest.mark.timeout(120 + 2 * TOTAL_S)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory if there is one: thousands of files are written, and none is kept."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as name:
        yield Path(name)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_nothing_that_is_made_up_does_harm(target: Target, directory: Path) -> None:
    read = target.opened(directory)
    for case in target.cases():
        run_checked(read, case.read_bytes())
    num = fuzz(target, read, TOTAL_S * target.share / SHARES)
    print(f"{target.name}: {num} inputs, seed {SEED}")


def test_every_case_belongs_to_a_target() -> None:
    folders = {path.name for path in CASES.iterdir() if path.is_dir()}
    assert folders <= {target.name for target in TARGETS}


READ_BY_COMMANDS = {
    "FederationStatus",
    "RetrainResponse",
    "CancelRunResponse",
    "GreetResponse",
    "PeerGreetResponse",
}
"""Answers to an operator's command, which no daemon reads."""

FED_WITH = {
    "RegisterRequest": "coordinator-calls",
    "CommitRequest": "coordinator-calls",
    "SubmitIdsRequest": "coordinator-calls",
    "FetchAlignmentRequest": "coordinator-calls",
    "RefuseAlignmentRequest": "coordinator-calls",
    "DryRunRequest": "coordinator-calls",
    "Heartbeat": "coordinator-calls",
    "RetrainRequest": "coordinator-calls",
    "ApproveRunRequest": "coordinator-calls",
    "RejectRunRequest": "coordinator-calls",
    "GreetRequest": "coordinator-calls",
    "RegisterResponse": "registered",
    "SubmitIdsResponse": "coordinator-answers",
    "FetchAlignmentResponse": "fetched-alignment",
    "DryRunResponse": "coordinator-answers",
    "Directive": "session",
    "Frame": "frames",
    "RepresentRequest": "represent-request",
    "RepresentResponse": "represent-response",
    "HandOnRequest": "hand-on",
    "HandOnResponse": "handed-on",
    "PredictRequest": "predict-request",
    "PublishRequest": "publish-request",
}
"""Which target has each message that a daemon reads, and that says something."""


def test_every_message_that_a_daemon_reads_has_a_target() -> None:
    services = [
        service
        for file in (coordinator_pb2, peer_pb2, prediction_pb2)
        for service in file.DESCRIPTOR.services_by_name.values()
    ]
    read = [method.input_type for service in services for method in service.methods]
    for service in services:
        if service.name != "Prediction":  # whose answers go to applications and operators
            read += [method.output_type for method in service.methods]
    expected = {message.name for message in read if message.fields} - READ_BY_COMMANDS
    assert set(FED_WITH) == expected
    assert set(FED_WITH.values()) <= {target.name for target in TARGETS}


# -- the fuzzer itself

MADE = Target("made", st.binary(max_size=4), lambda _: lambda _: None)


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("fuzzing.CASES", tmp_path / "cases")
    return tmp_path / "cases" / MADE.name


def test_a_report_can_be_sent_whatever_it_quotes() -> None:
    def read(_: bytes) -> NoReturn:
        try:
            raise KeyError("a \ud800")
        except KeyError as error:
            raise ValueError("b \ud800") from error

    with pytest.raises(Crashed) as caught:
        run_checked(read, b"")
    report = str(caught.getrepr(chain=True)).encode().decode()
    assert r"a \ud800" in report
    assert r"b \ud800" in report


def test_what_is_kept_is_what_crashed_even_if_the_time_is_over(cases: Path) -> None:
    def read(data: bytes) -> None:
        if data:
            raise ValueError

    with pytest.raises(Crashed):
        fuzz(MADE, read, 0.0)
    assert [path.read_bytes() != b"" for path in cases.iterdir()] == [True]


def test_who_interrupts_leaves_nothing_behind(cases: Path) -> None:
    def read(_: bytes) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fuzz(MADE, read, 1.0)
    assert not cases.exists()


def test_what_is_being_read_is_on_disk(cases: Path) -> None:
    def read(data: bytes) -> None:
        assert [path.read_bytes() for path in cases.iterdir()] == [data]

    fuzz(MADE, read, 0.0)
    assert not cases.exists()
