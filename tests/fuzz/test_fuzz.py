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
from state_targets import TARGETS as STATE

TARGETS = [*STATE, *FILES, *MESSAGES, *CALLS]
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
