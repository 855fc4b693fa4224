"""The files of a client's state directory: models, checkpoints, records, lists of people, keys."""

import hashlib
import json
import math
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from fuzzing import Read, Target
from hypothesis import strategies as st
from mutation import (
    Arrays,
    change_arrays,
    change_json,
    changed,
    changed_bytes,
    changed_json,
    changed_text,
    json_bytes,
)
from safetensors.numpy import save as save_arrays
from safetensors.torch import save
from torch import nn

from laser_vfl.client.alignment.alignment_ledger import AlignmentLedger
from laser_vfl.client.config import ClientConfig
from laser_vfl.client.own_models import NO_MODELS
from laser_vfl.client.privacy_ledger import FILE_NAME as SPENT
from laser_vfl.client.privacy_ledger import PrivacyLedger
from laser_vfl.client.serving.limits.alignment_quota import FILE_NAME as REQUESTED
from laser_vfl.client.serving.limits.alignment_quota import AlignmentQuota
from laser_vfl.client.serving.models.next_model import NextModel
from laser_vfl.client.serving.models.published_model import load_published
from laser_vfl.client.serving.models.served_model import ServedModel
from laser_vfl.client.session.coordinator_session import PublicationNews
from laser_vfl.client.session.peer_address import checked_address
from laser_vfl.client.storage.checkpoints import Checkpoints
from laser_vfl.client.storage.run_record import FILE_NAME as RECORD
from laser_vfl.client.storage.run_record import RunRecord, read_record, write_record
from laser_vfl.client.storage.state_directory import NEXT, StateDirectory
from laser_vfl.client.storage.step_log import StepLog, read_end
from laser_vfl.client.storage.tensor_file import read_arrays
from laser_vfl.client.tables.erasure_list import FILE_NAME as FORGOTTEN
from laser_vfl.client.tables.erasure_list import ErasureList
from laser_vfl.client.tables.pseudonym_store import FILE_NAME as PSEUDONYMS
from laser_vfl.client.tables.pseudonym_store import X25519, PseudonymStore
from laser_vfl.client.tables.table_listing import Keys
from laser_vfl.config.loading import load_config
from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import ContractError, LaserError
from laser_vfl.core.training.learner_state import read_state, restore_state
from laser_vfl.data import Encoding, LabelEncoding, TableSpec, read_table
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.models import build_fusion, build_representation
from tests.support.data.client_people import digests_at, pseudonym_tables
from tests.support.oracle.step_logs import read_log

RUN = "run-1"
KEYS = Keys(b"k" * 32, b"o" * 32)
SETTINGS = TrainingSettings(representation_dim=2, batch_size=2, epochs=1)
ALIGNMENT = ClientAlignment(
    (Group(0b01, 2), Group(0b11, 2)), {0: np.array([1, 3]), 1: np.array([0, 2])}
)
TABLE = "id,age,city,label\na,1,rome,x\nb,2.5,oslo,y\nc,,rome,x\nd,4,oslo,y\n"
CONFIG = """
federation: trial
name: bank
listen: 127.0.0.1:7001
coordinator: 127.0.0.1:7000
state: state
data: {train: table.csv, id: id, label: label}
"""


def _written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(0o600)
    return path


# -- the model


def _manifest() -> dict[str, Any]:
    """Return what a daemon writes beside a model of this table."""
    spec = TableSpec("id", "label")
    with tempfile.TemporaryDirectory() as directory:
        table = read_table(_written(Path(directory) / "table.csv", TABLE.encode()), spec)
    return {
        "version": 3,
        "run": RUN,
        "release": "0.1.0",
        "federation": "trial",
        "client": "bank",
        "roster": ["bank", "shop"],
        "heads": ["bank"],
        "addresses": {"bank": "127.0.0.1:1", "shop": "127.0.0.1:2"},
        "num_steps": 4,
        "trained_at": 1.7e9,
        "alignment": "ecdh",
        "training": SETTINGS.model_dump(),
        "precision": "float32",
        "privacy": {"clip": 1.0, "noise": 0.5, "epsilon": 3.0, "delta": 1e-5},
        "encoding": Encoding.fit(table).to_json(),
        "labels": LabelEncoding.fit(table, spec).to_json(),
        "scores": {
            "overall": {"accuracy": 0.5},
            "by_subset": {"bank": {"accuracy": 0.5}, "bank,shop": {"accuracy": None}},
        },
        "model": {
            "representation": "mlp",
            "representation_options": {},
            "hidden": [4],
            "fusion": "linear",
            "fusion_options": {},
        },
    }


MANIFEST = _manifest()


def _parameters() -> dict[str, torch.Tensor]:
    """Return parameters that the models of this manifest take, the same in every process.

    Otherwise no case would have their digest.
    """
    width = Encoding.from_json(MANIFEST["encoding"]).input_shape
    models = {
        "representation": build_representation(
            "mlp", input_shape=width, representation_dim=2, hidden=[4], options={}
        ),
        "fusion": build_fusion("linear", representation_dim=2, num_outputs=1, options={}),
    }
    parameters = nn.ModuleDict(models).state_dict()
    return {name: torch.full_like(tensor, 0.5) for name, tensor in parameters.items()}


PARAMETERS = _parameters()
SAVED = save(PARAMETERS)


def _serving(directory: Path) -> Read:
    """Return what loads the model and asks all that a daemon asks of it before it serves."""
    config = load_config(_written(directory / "bank.yaml", CONFIG.encode()), ClientConfig)
    state = StateDirectory(directory / "state")

    def serve(_: bytes) -> None:
        if not state.has_model(RUN):
            return
        model = load_published(config, state, RUN, NO_MODELS, torch.device("cpu"))
        served = ServedModel(model, None, None, None)  # type: ignore[arg-type]
        assert isinstance(served.asked, list)
        assert served.max_rows >= 1
        assert served.subject.width >= 1
        assert served.num_outputs >= 0
        assert isinstance(model.score_name, str)
        for peer in (*model.roster, "nobody"):
            model.is_asked_by(peer)
        state.publish(RUN)

    return serve


def _open_manifest(directory: Path) -> Read:
    serve, place = _serving(directory), directory / "state" / "models" / RUN
    _written(place / "model.safetensors", SAVED)

    def read(data: bytes) -> None:
        _written(place / "manifest.json", data)
        serve(b"")

    read(GOOD_MANIFEST)
    return read


GOOD_MANIFEST = json.dumps(MANIFEST | {"sha256": hashlib.sha256(SAVED).hexdigest()}).encode()


def _open_parameters(directory: Path) -> Read:
    serve, place = _serving(directory), directory / "state" / "models" / RUN

    def read(data: bytes) -> None:
        _written(place / "model.safetensors", data)
        manifest = MANIFEST | {"sha256": hashlib.sha256(data).hexdigest()}
        _written(place / "manifest.json", json.dumps(manifest).encode())
        serve(b"")

    read(SAVED)
    return read


def _tensors(good: dict[str, torch.Tensor]) -> st.SearchStrategy[bytes]:
    """Return files of tensors that nearly fit."""
    arrays = {name: tensor.numpy() for name, tensor in good.items()}
    return changed([arrays], change_arrays, save_arrays)


# -- what a run leaves


def _state() -> tuple[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor]]:
    models = nn.ModuleDict({"representation": nn.Linear(2, 2)})
    optimizer = torch.optim.Adam(models.parameters())
    models["representation"](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return models, optimizer, read_state(models, optimizer, torch.Generator().get_state())


_MODELS, _OPTIMIZER, STATE = _state()


def _open_checkpoint(directory: Path) -> Read:
    """The tensors are of any kind, and the note vouches for them."""

    def read(data: bytes) -> None:
        _written(directory / "4.safetensors", data)
        note = {
            "version": 1,
            "step": 4,
            "sha256": hashlib.sha256(data).hexdigest(),
            "size": len(data),
            "info": {},
        }
        _written(directory / "4.json", json.dumps(note).encode())
        found = Checkpoints(directory).load()
        if found is not None:
            restore_state(_MODELS, _OPTIMIZER, found[1])

    read(save(STATE))
    return read


def _open_note(directory: Path) -> Read:
    tensors = save(STATE)
    _written(directory / "4.safetensors", tensors)

    def read(data: bytes) -> None:
        _written(directory / "4.json", data)
        checkpoints = Checkpoints(directory)
        checkpoints.load(9)
        assert set(checkpoints.held) <= {4}

    return read


NOTE = {
    "version": 1,
    "step": 4,
    "sha256": hashlib.sha256(save(STATE)).hexdigest(),
    "size": len(save(STATE)),
    "info": {"generation": 3},
}


def _record() -> tuple[dict[str, Any], Arrays]:
    """Return the document and the arrays of a run's record, as they are written."""
    with tempfile.TemporaryDirectory() as name:
        tables = {"train": ALIGNMENT, "test": ClientAlignment((), {})}
        record = RunRecord(RUN, ("bank", "shop"), "ecdh", SETTINGS, ("bank",), tables, "ab" * 32)
        write_record(Path(name), record)
        arrays, metadata = read_arrays(Path(name) / RECORD)
    return json.loads(metadata["record"]), arrays


DOCUMENT, RECORDED = _record()


def _signed(parts: tuple[Any, Arrays]) -> bytes:
    """Write a record that was changed as somebody would who means it."""
    text, arrays = json.dumps(parts[0]), parts[1]
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        length = len(arrays[name]) if arrays[name].ndim else 0
        digest.update(f";{name};{length};".encode())
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return save_arrays(arrays, {"record": text, "sha256": digest.hexdigest()})


def _change_record(random: Random, parts: tuple[Any, Arrays]) -> tuple[Any, Arrays]:
    if random.random() < 0.5:
        return change_json(random, parts[0]), parts[1]
    return parts[0], change_arrays(random, parts[1])


def _open_record(directory: Path) -> Read:
    def read(data: bytes) -> None:
        _written(directory / RECORD, data)
        record = read_record(directory)
        if record is None:
            return
        write_record(directory / "again", record)
        for alignment in record.tables.values():
            assert alignment.num_rows >= 0
            for number, rows in alignment.rows.items():
                assert len(rows) == alignment.groups[number].size

    return read


LOG = "0 1 3\n1 1 3\nloaded 0\n1 2 1\nloaded 4 2\n"


def _open_log(directory: Path) -> Read:
    def read(data: bytes) -> None:
        path = _written(directory / "steps.log", data)
        log = StepLog(path)  # a daemon appends to what is there
        log.applied(5, 2, 3)
        log.close()
        read_end(path)
        read_log(path)

    return read


# -- lists of people


NAMED = pseudonym_tables((["ada", "bob"], ["ada", "cyd"]), run=RUN)[0]
PEOPLE: Arrays = {
    "digests": NAMED.digests,
    "points": NAMED.points,
    "group": np.ascontiguousarray(NAMED.names["group"]),
    "place": np.ascontiguousarray(NAMED.names["place"]),
    "sizes": np.array([group.size for group in NAMED.groups], dtype=np.uint64),
    "masks": np.array([group.observed for group in NAMED.groups], dtype=np.uint64),
    "scalar": np.frombuffer(NAMED.scalar, dtype=np.uint8),
}


NAMES = {
    "id": NAMED.id,
    "run": RUN,
    "members": json.dumps(NAMED.members),
    "points": X25519,
    "domain": NAMED.domain,
}
ODD_NAMES = ["", "../x", "[1]", "{}", "null", "[" * 5000, "é"]


def _change_people(
    random: Random, parts: tuple[Arrays, dict[str, str]]
) -> tuple[Arrays, dict[str, str]]:
    if random.random() < 0.2:
        name = random.choice(sorted(NAMES))
        return parts[0], parts[1] | {name: random.choice(ODD_NAMES)}
    return change_arrays(random, parts[0]), parts[1]


def _saved(parts: tuple[Arrays, dict[str, str]]) -> bytes:
    return save_arrays(*parts)


def _open_pseudonyms(directory: Path) -> Read:
    store = PseudonymStore(StateDirectory(directory))

    def read(data: bytes) -> None:
        _written(directory / "models" / RUN / PSEUDONYMS, data)
        found = store.purge(RUN, lambda digests: np.zeros(len(digests), dtype=bool))
        if found is None:
            return
        assert found.run == RUN
        asked = digests_at("bank", ["ada", "bob", "zoe"])
        for client in range(2):
            names, at = found.names_for(asked, client)
            assert len(names) == 12 * len(at)
            assert len(found.digests_of(names, client)) == len(at)
        assert len(found.known) == len(found.digests)
        store.write(found.without(np.ones(len(found.digests), dtype=bool)))

    read(save_arrays(PEOPLE, NAMES))
    return read


def _erasures() -> tuple[Arrays, dict[str, str]]:
    with tempfile.TemporaryDirectory() as name:
        ErasureList(Path(name), KEYS, "trial").add(["ada", "bob"])
        return read_arrays(Path(name) / FORGOTTEN)


ERASED, ERASED_BY = _erasures()


def _open_erasures(directory: Path) -> Read:
    def read(data: bytes) -> None:
        _written(directory / FORGOTTEN, data)
        forgotten = ErasureList(directory, KEYS, "trial")
        forgotten.refresh()
        assert forgotten.are(["ada", "zoe"]).shape == (2,)
        assert forgotten.have(digests_at("bank", ["ada"])).shape == (1,)
        forgotten.add(["cyd"])

    return read


# -- small ones


def _open_ledger(directory: Path) -> Read:
    def read(data: bytes) -> None:
        ledger = AlignmentLedger(_written(directory / "ledger.json", data), 10)
        ledger.may_align_ids()
        ledger.give_back()
        ledger.note()

    return read


PRIVACY = """
privacy: {clip: 1.0, noise: 4.0, delta: 1.0e-5, max_epsilon: 100.0}
"""
CHARGES = [
    {"run": RUN, "seed": 7, "noise": 4.0, "num_releases": 2},
    {"run": "run-0", "seed": 1, "noise": 20.0, "num_releases": 9},
]


def _vouched(charges: Any) -> bytes:
    """Write charges with their digest, as somebody would who means it."""
    digest = hashlib.sha256(json.dumps(charges, sort_keys=True).encode()).hexdigest()
    return json_bytes({"version": 1, "runs": charges, "sha256": digest})


def _open_privacy_spent(directory: Path) -> Read:
    path = _written(directory / "bank.yaml", (CONFIG + PRIVACY).encode())
    config = load_config(path, ClientConfig)

    def read(data: bytes) -> None:
        _written(config.state / SPENT, data)
        spent = PrivacyLedger(config)
        assert spent.num_runs >= 0
        for change in (
            lambda: spent.check_possible(SETTINGS),
            lambda: spent.charge(RUN, SETTINGS, is_new=False),
            lambda: spent.charge_again(RUN, SETTINGS, 1),
        ):
            try:
                change()
            except LaserError as error:
                str(error).encode()
        assert spent.has(RUN) or spent.epsilon_spent() > 99
        assert PrivacyLedger(config).epsilon_spent() == spent.epsilon_spent()

    return read


NOW = time.time()
MINUTE = math.floor(NOW / 60)


def _open_requested_ids(directory: Path) -> Read:
    def read(data: bytes) -> None:
        path = _written(directory / REQUESTED, data)
        quota = AlignmentQuota(path, 10, lambda: NOW)
        left = quota.left("crm")
        assert 0 <= left <= 10
        if left:
            assert quota.take("crm", 1)
            assert AlignmentQuota(path, 10, lambda: NOW).left("crm") == left - 1

    return read


def _open_next_model(directory: Path) -> Read:
    state = StateDirectory(directory / "state")
    for run in ("run-0", RUN):
        state.write_model(run, nn.Linear(1, 1), {"scores": None})
    state.publish("run-0")

    def read(data: bytes) -> None:
        _written(state.path / NEXT, data)
        for policy in ("auto", "hold"):
            held = NextModel(state, policy)  # type: ignore[arg-type]
            assert held.run in ("", RUN)
            held.hear(PublicationNews(("run-0", RUN)))
            assert held.is_due == held.is_published
        state.forget_next()

    return read


def _open_addresses(directory: Path) -> Read:
    state = StateDirectory(directory)

    def read(data: bytes) -> None:
        _written(directory / "peers.json", data)
        addresses = state.read_addresses()
        for name, address in addresses.items():
            try:
                checked_address(address, name)
            except ContractError:
                continue
        state.write_addresses({name: a for name, a in addresses.items() if a})

    return read


def _open_key(directory: Path) -> Read:
    state = StateDirectory(directory)

    def read(data: bytes) -> None:
        _written(directory / "own.key", data)
        assert len(state.own_key()) == 32

    return read


TARGETS = [
    Target("manifest", changed_json([json.loads(GOOD_MANIFEST)]), _open_manifest, share=3),
    Target("parameters", _tensors(PARAMETERS), _open_parameters),
    Target("checkpoint", _tensors(STATE), _open_checkpoint),
    Target("checkpoint-note", changed_json([NOTE]), _open_note),
    Target(
        "run-record",
        changed([(DOCUMENT, RECORDED)], _change_record, _signed),
        _open_record,
        share=2,
    ),
    Target("step-log", changed_text([LOG]), _open_log),
    Target(
        "pseudonyms",
        changed([(PEOPLE, NAMES)], _change_people, _saved),
        _open_pseudonyms,
        share=2,
    ),
    Target(
        "erasures",
        changed([ERASED], change_arrays, lambda arrays: save_arrays(arrays, ERASED_BY)),
        _open_erasures,
    ),
    Target("ledger", changed_json([[1.7e9, 1.7e9 + 5, -1.7e9]]), _open_ledger),
    Target("addresses", changed_json([{"bank": "a:1", "shop": "[::1]:2"}]), _open_addresses),
    Target("own-key", changed_bytes([bytes(32)]), _open_key),
    Target(
        "privacy-spent", changed([CHARGES], change_json, _vouched), _open_privacy_spent, share=2
    ),
    Target(
        "requested-ids",
        changed_json([{"crm": {str(MINUTE): 3, str(MINUTE - 2000): 9}, "web": {}}]),
        _open_requested_ids,
    ),
    Target("next-model", changed_json([{"run": RUN, "is_published": False}]), _open_next_model),
]
