"""Counting TCP bytes looks at every descriptor and leaves them all as they were."""

import os
import sys

import pytest

from laser_vfl.observability import tcp_counters as traffic


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells only on Linux")
def test_it_counts_without_leaking_descriptors(tmp_path):
    reading, writing = os.pipe()
    with (tmp_path / "file").open("w") as file:
        before = sorted(os.listdir("/proc/self/fd"))
        for _ in range(100):
            assert isinstance(traffic.tcp_bytes_sent(), int)
        assert sorted(os.listdir("/proc/self/fd")) == before
        file.write("still open")
    os.write(writing, b"x")
    assert os.read(reading, 1) == b"x"
    os.close(reading)
    os.close(writing)


def test_where_the_kernel_does_not_tell_it_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(traffic, "_FDS", tmp_path / "absent")
    assert traffic.tcp_bytes_sent() is None
