"""Where AMX is announced but ends a process, torch is told to do without."""

import os
import signal

import pytest

from laser_vfl.models import bfloat16

DIES = f"import os; os.kill(os.getpid(), {int(signal.SIGILL)})"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Pretend to be a machine with these flags, on which the probe does this."""
    monkeypatch.delenv(bfloat16.LIMIT, raising=False)

    def pretend(flags, probe):
        path = tmp_path / "cpuinfo"
        path.write_text(f"flags : {flags}\n")
        monkeypatch.setattr(bfloat16, "_CPU_INFO", path)
        monkeypatch.setattr(bfloat16, "PROBE", probe)
        bfloat16.avoid_broken_instructions()
        return os.environ.pop(bfloat16.LIMIT, None)

    return pretend


def test_amx_that_ends_a_process_is_not_used(machine):
    assert machine("avx512f amx_tile", DIES) == bfloat16.WITHOUT_AMX


@pytest.mark.parametrize("probe", ["pass", "raise SystemExit(1)"])
def test_amx_that_works_is_used(machine, probe):
    assert machine("avx512f amx_tile", probe) is None


def test_without_amx_nothing_is_tried(machine):
    assert machine("avx512f", DIES) is None


def test_who_has_set_a_limit_is_obeyed(machine, monkeypatch):
    monkeypatch.setenv(bfloat16.LIMIT, "AVX2")
    assert machine("amx_tile", DIES) == "AVX2"


def test_a_machine_that_does_not_tell_is_taken_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(bfloat16, "_CPU_INFO", tmp_path / "nothing")
    monkeypatch.delenv(bfloat16.LIMIT, raising=False)
    bfloat16.avoid_broken_instructions()
    assert bfloat16.LIMIT not in os.environ
