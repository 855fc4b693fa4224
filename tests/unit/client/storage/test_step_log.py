"""The step log: a line for a step, whole lines only, and never in the way of training."""

import errno
import os

import pytest

from laser_vfl.client.storage import step_log
from laser_vfl.client.storage.step_log import StepLog, has_learnt, read_end
from laser_vfl.core.errors import DataError
from laser_vfl.core.training.applied_steps import Applied, Loaded
from tests.support.oracle.step_logs import read_log


@pytest.fixture
def path(tmp_path):
    return tmp_path / "steps.log"


def test_what_was_noted_is_read_at_once(path):
    log = StepLog(path)
    log.loaded(0)
    log.applied(0, 1, 0b111)
    log.applied(12, 3, 2**63)
    log.loaded(10, 4)
    assert path.read_text() == "loaded 0\n0 1 7\n12 3 8000000000000000\nloaded 10 4\n"
    assert read_log(path) == [Loaded(0), Applied(0, 1, 7), Applied(12, 3, 2**63), Loaded(10, 4)]
    log.close()
    log.close()
    log.applied(13, 3, 1)
    assert len(read_log(path)) == 4


def test_nothing_is_learnt_before_a_step_or_after_the_initial_state_was_loaded(path):
    log = StepLog(path)
    assert not has_learnt(path)
    log.loaded(40)
    assert not has_learnt(path)
    log.applied(41, 1, 3)
    log.loaded(40)
    assert has_learnt(path)
    log.loaded(0)
    assert not has_learnt(path)
    log.close()


def test_another_life_goes_on_after_half_a_line(path):
    path.write_text("0 1 7\n1 1 7\n2 1")
    assert read_log(path) == [Applied(0, 1, 7), Applied(1, 1, 7)]
    log = StepLog(path)
    log.loaded(1)
    assert read_log(path) == [Applied(0, 1, 7), Applied(1, 1, 7), Loaded(1)]
    log.close()


@pytest.mark.parametrize("text", ["", "0", "0 1 7"])
def test_half_a_first_line_is_nothing(path, text):
    path.write_text(text)
    assert read_log(path) == []


@pytest.mark.parametrize("line", ["", "1 1", "1 1 G", "-1 1 7", "loaded", "loaded x", "\xff", "²"])
def test_a_wrong_line_is_named(path, line):
    path.write_text(f"0 1 7\n{line}\n1 1 7\n")
    with pytest.raises(DataError, match="no line of a step log") as caught:
        read_log(path)
    assert caught.value.where == f"{path}:2"


def test_a_log_that_is_not_there_is_an_error_for_people(path):
    with pytest.raises(DataError, match="cannot be read"):
        read_log(path)


def refuse(file, line):
    raise OSError(errno.ENOSPC, "No space left on device")


def half(file, line, write=os.write):
    return write(file, line[:3])


@pytest.mark.parametrize("write", [refuse, half], ids=["full", "nearly full"])
def test_a_line_that_cannot_be_written_ends_the_log_and_not_the_training(
    path, monkeypatch, caplog, write
):
    log = StepLog(path)
    log.applied(0, 1, 7)
    with monkeypatch.context() as patch:
        patch.setattr(step_log.os, "write", write)
        log.applied(1, 1, 7)
    log.applied(2, 1, 7)
    assert path.read_text() == "0 1 7\n"
    assert caplog.text.count("cannot be written") == 1
    assert "training goes on" in caplog.text


def test_a_log_that_cannot_be_opened_is_said_once(tmp_path, caplog):
    log = StepLog(tmp_path / "missing" / "steps.log")
    log.applied(0, 1, 7)
    log.loaded(0)
    assert caplog.text.count("cannot be written (No such file or directory)") == 1


@pytest.mark.parametrize("num_steps", [0, 1, 3, 20, 21, 22, 23, 200])
def test_the_end_is_read_alone(path, num_steps):
    log = StepLog(path)
    for step in range(num_steps):
        log.applied(step, 1, 2**64 - 1 if step % 2 else 1)
    log.close()
    with path.open("a") as file:
        file.write("12 3")
    noted, end = read_log(path), read_end(path)
    assert end == noted[len(noted) - len(end) :]
    assert len(end) >= min(2, num_steps)
    assert len(end) < 40


def test_the_end_holds_two_lines_of_any_length(path):
    longest = f"{2**63 - 1} {2**63 - 1} {2**64 - 1:x}\n"
    path.write_text(longest * 3 + longest[:-1])
    assert read_end(path)[-2:] == [Applied(2**63 - 1, 2**63 - 1, 2**64 - 1)] * 2


def test_an_end_that_is_not_there_is_an_error_for_people(path):
    with pytest.raises(DataError, match="cannot be read"):
        read_end(path)
