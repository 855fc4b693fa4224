"""The contract: generated code is what the protos say, and the coordinator sees no tensor."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from laser_vfl.client.tables.pseudonym_table import NAME
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.security.access import ACCESS
from laser_vfl.v1 import coordinator_pb2, peer_pb2, prediction_pb2, tensor_pb2

ROOT = Path(__file__).resolve().parents[3]


def contents(folder):
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".py", ".pyi")
    }


def test_generated_code_is_what_the_protos_generate(tmp_path):
    spec = importlib.util.spec_from_file_location(
        "generate_protos", ROOT / "scripts" / "generate_protos.py"
    )
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.generate(tmp_path)
    committed = contents(ROOT / "laser_vfl" / "v1")
    generated = contents(tmp_path / "laser_vfl" / "v1")
    assert {"coordinator_pb2.py", "peer_pb2_grpc.py", "tensor_pb2.pyi"} <= generated.keys()
    assert sorted(committed) == sorted(generated)
    stale = [name for name in generated if committed[name] != generated[name]]
    assert not stale, "run `make protos`"


def test_the_settings_on_the_wire_are_the_settings_of_a_run():
    fields = [field.name for field in coordinator_pb2.TrainingSettings.DESCRIPTOR.fields]
    assert sorted(fields) == sorted(TrainingSettings.model_fields)


@pytest.mark.parametrize(
    "settings",
    [
        TrainingSettings(representation_dim=32, batch_size=128, epochs=20),
        TrainingSettings(
            representation_dim=65_536,
            batch_size=1_000_000,
            epochs=2**31 - 1,
            seed=2**63 - 1,
            preset="paper",
            wire_precision="bfloat16",
            step_timeout_s=0.25,
        ),
    ],
)
def test_settings_cross_the_wire_unchanged(settings):
    sent = coordinator_pb2.TrainingSettings(**settings.model_dump()).SerializeToString()
    message = coordinator_pb2.TrainingSettings.FromString(sent)
    received = {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}
    assert TrainingSettings.model_validate(received) == settings


def test_a_frame_says_which_step_of_which_run_it_is_for_and_from_whom():
    fields = {field.name for field in peer_pb2.Frame.DESCRIPTOR.fields}
    assert {"run", "generation", "step", "kind", "sender", "tensor"} <= fields
    assert {field.name for field in tensor_pb2.Tensor.DESCRIPTOR.fields} == {
        "dtype",
        "shape",
        "data",
    }


def test_nothing_the_coordinator_is_told_can_hold_a_tensor():
    names = {"Tensor", "Frame"}
    assert coordinator_pb2.DESCRIPTOR.dependencies == []
    for message in coordinator_pb2.DESCRIPTOR.message_types_by_name.values():
        for field in message.fields:
            assert field.message_type is None or field.message_type.name not in names


def fields_of(message, seen=()):
    """All fields of a message and of those in it."""
    for field in message.fields:
        yield message.name, field
        inner = field.message_type
        if inner is not None and inner.name not in seen:
            yield from fields_of(inner, (*seen, inner.name))


def bytes_in(messages):
    return {
        f"{owner}.{field.name}"
        for message in messages
        for owner, field in fields_of(message)
        if field.type == field.TYPE_BYTES
    }


def test_bytes_come_to_the_coordinator_as_blinded_ids_and_commitments_alone():
    methods = coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"].methods
    assert bytes_in(method.input_type for method in methods) == {
        "SubmitIdsRequest.blinded",
        "SubmitIdsRequest.tables",
        "CommitRequest.sha256",
    }
    assert bytes_in(method.output_type for method in methods) == {
        "GroupRows.rows",
        "Commitment.sha256",
    }


def test_lists_that_are_not_fully_blinded_pass_among_clients_alone():
    peer = peer_pb2.DESCRIPTOR.services_by_name["Peer"]
    assert peer.methods_by_name["HandOn"].input_type is peer_pb2.HandOnRequest.DESCRIPTOR
    coordinator = coordinator_pb2.DESCRIPTOR.services_by_name["Coordinator"]
    assert "HandOn" not in coordinator.methods_by_name
    for message in coordinator_pb2.DESCRIPTOR.message_types_by_name.values():
        assert "points" not in message.fields_by_name


def test_whoever_speaks_in_an_alignment_says_which_and_in_which_life():
    for message in (
        peer_pb2.HandOnRequest,
        coordinator_pb2.CommitRequest,
        coordinator_pb2.SubmitIdsRequest,
        coordinator_pb2.FetchAlignmentRequest,
        coordinator_pb2.RefuseAlignmentRequest,
    ):
        assert {"alignment", "incarnation"} <= set(message.DESCRIPTOR.fields_by_name)


def test_a_client_is_told_of_groups_and_its_own_rows_but_not_of_ids():
    fields = {
        field.name for _, field in fields_of(coordinator_pb2.FetchAlignmentResponse.DESCRIPTOR)
    }
    assert fields == {"table", "groups", "observed", "size", "rows", "group"}


def test_a_name_takes_as_many_bytes_as_the_contract_says():
    assert NAME.itemsize == 4 + 8
    assert NAME.fields["group"][0].str == "<u4"
    assert NAME.fields["place"][0].str == "<u8"


COORDINATOR = """
import json, sys
from pathlib import Path

import laser_vfl.coordinator.daemon

loaded = {"daemon": sorted(sys.modules)}
from laser_vfl.cli import main
from laser_vfl.cli import daemon_process as daemons

def run_until_signal(daemon, *_):
    daemon.close()
    loaded["run"] = sorted(sys.modules)

daemons.run_until_signal = run_until_signal
sys.argv = ["laser-vfl", "coordinator", "run", "--insecure", "--config", sys.argv[1]]
try:
    main()
except SystemExit as ending:
    assert not ending.code, ending.code
print(json.dumps(loaded))
"""

CONFIG = """
federation: churn
listen: 127.0.0.1:0
state: ./state
clients: [bank, shop]
training: {method: laser, representation_dim: 32, batch_size: 128, epochs: 20, seed: 7}
"""


def test_a_coordinator_loads_neither_torch_nor_the_tensor_codec_nor_the_curve(tmp_path):
    config = tmp_path / "coordinator.yaml"
    config.write_text(CONFIG)
    finished = subprocess.run(
        [sys.executable, "-c", COORDINATOR, str(config)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    loaded = json.loads(finished.stdout)
    assert "laser_vfl.coordinator.api.coordinator_service" in loaded["daemon"]
    assert "laser_vfl.config.loading" in loaded["run"]
    for modules in loaded.values():
        foreign = {
            "torch",
            "nacl",
            "laser_vfl.transport.tensor_codec",
            "laser_vfl.client",
            "laser_vfl.v1.peer_pb2",
            "laser_vfl.data.points",
        }
        assert not foreign & set(modules)


def test_every_call_of_the_contract_says_who_may_make_it():
    services = [
        service
        for module in (coordinator_pb2, peer_pb2, prediction_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    ]
    calls = {
        f"/{service.full_name}/{method.name}" for service in services for method in service.methods
    }
    assert calls == {call for call in ACCESS if not call.startswith("/grpc.")}
