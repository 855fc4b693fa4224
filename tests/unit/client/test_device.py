"""How many cores a client may use where it runs in a container."""

import os

import pytest

from laser_vfl.client import device


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Have a machine of eight cores, and its files about containers in a directory of the test."""
    monkeypatch.setattr(device, "_CGROUPS", tmp_path)
    monkeypatch.setattr(device, "_OWN_CGROUP", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("limit", "cores"),
    [("200000 100000", 2), ("150000 100000", 1), ("50000 100000", 1), ("max 100000", 8), ("", 8)],
)
def test_the_limit_of_a_container_counts(cgroups, limit, cores):
    (cgroups / "cpu.max").write_text(limit + "\n")
    assert device.num_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [("300000", 3), ("-1", 8), ("much", 8)])
def test_so_does_that_of_an_older_host(cgroups, quota, cores):
    (cgroups / "cpu").mkdir()
    (cgroups / "cpu" / "cpu.cfs_quota_us").write_text(quota + "\n")
    (cgroups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert device.num_cores() == cores


@pytest.mark.parametrize(
    ("own", "above", "cores"),
    [("200000 100000", "max 100000", 2), ("max 100000", "400000 100000", 4), ("", "", 8)],
)
def test_so_does_that_of_a_service_or_of_what_it_belongs_to(cgroups, own, above, cores):
    group = cgroups / "system.slice" / "laser-vfl-client.service"
    group.mkdir(parents=True)
    (cgroups / "own").write_text("1:name=x:/\n0::/system.slice/laser-vfl-client.service\n")
    (group / "cpu.max").write_text(own + "\n")
    (group.parent / "cpu.max").write_text(above + "\n")
    assert device.num_cores() == cores


def test_without_a_limit_there_are_all_cores(cgroups):
    assert device.num_cores() == 8


@pytest.mark.parametrize(
    ("addresses", "threads"),
    [
        ({}, 8),
        ({"bank": "10.0.0.1:7001"}, 8),
        ({"shop": "10.0.0.2:7001"}, 8),
        ({"shop": "10.0.0.1:7002"}, 4),
        ({"bank": "10.0.0.1:7001", "shop": "10.0.0.1:7002"}, 4),
        ({"bank": "moved.example:7001", "shop": "10.0.0.1:7002"}, 4),
        ({f"shop{n}": "10.0.0.1:7002" for n in range(20)}, 1),
    ],
)
def test_cores_are_shared_with_the_clients_on_the_same_host(cgroups, addresses, threads):
    """Also when nobody is known: a client that comes back late has no view to read them from."""
    assert device.num_threads("auto", "10.0.0.1:7001", addresses, "bank") == threads


def test_a_number_of_threads_that_is_set_is_taken(cgroups):
    assert device.num_threads(3, "10.0.0.1:7001", {}, "bank") == 3
