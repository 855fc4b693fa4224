"""Local precision and devices: bfloat16 on a CPU, and a GPU where there is one."""

import json

import pytest
import torch
from safetensors.torch import load_file

from laser_vfl.client.device import Host
from tests.support.daemons.harness import Site
from tests.support.data.people import People

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA GPU")


def _train(site: Site, training: dict[str, object], **more: object) -> dict[str, torch.Tensor]:
    """Train bank and shop and return bank's parameters."""
    people = People(160, seed=2)
    for name in ("bank", "shop"):
        people.write(site.path, name, test_share=0.3, p_hold=0.9)
    site.start_coordinator(site.coordinator_config(["bank", "shop"], training))
    clients = []
    for name in ("bank", "shop"):
        data = {
            "train": f"{name}_train.csv",
            "test": f"{name}_test.csv",
            "id": "id",
            "label": "kind",
        }
        optimizer = {"name": "adam", "lr": 0.01}
        config = site.client_config(name, data=data, optimizer=optimizer, **more)
        clients.append(site.start_client(config, "--exit-after-training"))
    assert [client.wait_exit() for client in clients] == [0, 0]
    return load_file(site.path / "bank-state" / "model" / "model.safetensors")


def test_bfloat16_trains_on_a_cpu(site: Site) -> None:
    parameters = _train(site, {"epochs": 30}, precision="bfloat16")
    assert all(tensor.dtype == torch.float32 for tensor in parameters.values())
    scores = json.loads((site.path / "bank-state" / "scores.json").read_text())
    assert scores["overall"]["accuracy"] > 0.6
    manifest = json.loads((site.path / "bank-state" / "model" / "manifest.json").read_text())
    assert manifest["training"]["wire_precision"] == "float32"


def test_a_gpu_that_is_not_there_is_a_mistake_of_the_configuration(site: Site) -> None:
    People(40).write(site.path, "bank")
    client = site.start_client(site.client_config("bank", device="cuda:99"))
    assert client.wait_exit() == 2
    (line,) = client.stderr.splitlines()
    assert "cuda:99" in line


@needs_gpu
def test_a_gpu_comes_close_to_the_cpu(site: Site, authority: object) -> None:
    on_gpu = _train(site, {"epochs": 3}, device="cuda")
    with Site(site.path / "cpu", site.authority) as other:
        on_cpu = _train(other, {"epochs": 3}, device="cpu")
    for name, expected in on_cpu.items():
        torch.testing.assert_close(on_gpu[name], expected, rtol=1e-3, atol=1e-4)


@needs_gpu
def test_bfloat16_trains_on_a_gpu(site: Site) -> None:
    _train(site, {"epochs": 30, "wire_precision": "bfloat16"}, device="cuda", precision="bfloat16")
    scores = json.loads((site.path / "bank-state" / "scores.json").read_text())
    assert scores["overall"]["accuracy"] > 0.6


@needs_gpu
def test_tensors_cross_through_pinned_buffers() -> None:
    host = Host(torch.device("cuda"))
    assert host.blank(2, 3).is_pinned()
    on_gpu = host.to_device(torch.arange(6.0))
    assert on_gpu.device.type == "cuda"
    back = host.to_host(on_gpu)
    assert back.is_pinned()
    assert torch.equal(back, torch.arange(6.0))
