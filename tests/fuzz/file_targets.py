"""Files that people write and others bring: configurations, tables, keys, ids, databases."""

import io
import json
import sqlite3
import tempfile
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding as PemEncoding
from cryptography.hazmat.primitives.serialization import NoEncryption, PrivateFormat
from fuzzing import Read, Target
from mutation import changed_bytes, changed_json, changed_text

from laser_vfl.cli.ids_file import batched, read_ids
from laser_vfl.client.config import ClientConfig
from laser_vfl.config.loading import is_of, load_config
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.coordinator.storage.database import FILE, Store
from laser_vfl.coordinator.storage.run_history import FILE_NAME as HISTORY
from laser_vfl.coordinator.storage.run_history import RunHistory
from laser_vfl.coordinator.storage.state_persister import StatePersister
from laser_vfl.core.errors import LaserError
from laser_vfl.data import Encoding, LabelEncoding, TableSpec, check_header, read_table
from laser_vfl.data.ids import read_secret
from laser_vfl.experiments.grid.experiment_settings import load_experiment
from laser_vfl.experiments.runner.experiment_record import read_record, write_record
from laser_vfl.experiments.runner.results_file import read_lines
from laser_vfl.planning.expected_groups import groups_of_overlaps
from laser_vfl.security.application_tokens import Tokens
from laser_vfl.security.certificate_files import init_authority, issue
from laser_vfl.security.certificates import read_certificates, read_key, verify_issued_by
from laser_vfl.security.credentials import CredentialFiles, load_credentials
from laser_vfl.security.identity import client_of
from laser_vfl.security.signing_requests import read_request, request_pem
from tests.support.fakes.simulated_federation import Play, started

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "deploy"


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


# -- configurations


def _open_config(directory: Path) -> Read:
    def read(data: bytes) -> None:
        path = _written(directory / "any.yaml", data)
        for model, other in (
            (ClientConfig, CoordinatorConfig),
            (CoordinatorConfig, ClientConfig),
        ):
            try:
                is_of(path, model, other)
                load_config(path, model)
            except LaserError as error:
                str(error).encode()

    return read


def _open_experiment(directory: Path) -> Read:
    return lambda data: load_experiment(_written(directory / "grid.yaml", data))


EXPERIMENT = """
name: trial
datasets: [digits]
methods:
  - laser
  - {method: local, learning_rate: 0.01}
p_train: [0.0, 0.5]
p_test: [0.0]
seeds: 2
"""


# -- tables

CSV = "id,age,city,when,label\na,1,rome,2020-01-01,x\nb,2.5,oslo,,y\nc,,bern,2020-01-03,x\n"


def _parquet() -> bytes:
    file = io.BytesIO()
    pl.read_csv(io.BytesIO(CSV.encode())).write_parquet(file)
    return file.getvalue()


def _npz() -> bytes:
    file = io.BytesIO()
    ids = np.array(["a", "b", "c"])
    np.savez(file, id=ids, x=np.arange(6.0).reshape(3, 2), label=np.array([1, 2, 1]))
    return file.getvalue()


def _open_table(suffix: str) -> Any:
    def opened(directory: Path) -> Read:
        spec = TableSpec("id", "label")

        def read(data: bytes) -> None:
            path = _written(directory / f"table{suffix}", data)
            try:
                check_header(path, spec)
            finally:
                table = read_table(path, spec)
            encoding = Encoding.fit(table)
            Encoding.from_json(json.loads(json.dumps(encoding.to_json()))).apply(table)
            labels = LabelEncoding.fit(table, spec)
            LabelEncoding.from_json(json.loads(json.dumps(labels.to_json()))).apply(table)

        return read

    return opened


def _open_ids(directory: Path) -> Read:
    path = directory / "ids.csv"

    def read(data: bytes) -> None:
        assert sum(map(len, batched(read_ids(io.BytesIO(data), path)))) <= len(data)

    return read


# -- secrets and certificates


def _made() -> tuple[bytes, bytes, bytes, bytes]:
    """Return a certificate, its key, its authority and a request."""
    with tempfile.TemporaryDirectory() as name:
        directory, now = Path(name), datetime.now(UTC)
        authority = init_authority(directory, "trial", now=now)
        bank = client_of("trial", "bank")
        issue(authority, directory, [bank], now=now)
        key = read_key(directory / "bank.key")
        return (
            (directory / "bank.pem").read_bytes(),
            (directory / "bank.key").read_bytes(),
            (directory / "ca.pem").read_bytes(),
            request_pem(bank, key),  # type: ignore[arg-type]
        )


CERTIFICATE, KEY, AUTHORITY, REQUEST = _made()


def _pem(label: str) -> Any:
    """Return what puts bytes of ASN.1 between the lines of a PEM file."""

    def wrapped(data: bytes) -> bytes:
        text = b64encode(data).decode()
        lines = [text[at : at + 64] for at in range(0, len(text), 64)]
        return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----\n"]).encode()

    return wrapped


def _asn1(pem: bytes) -> bytes:
    return x509.load_pem_x509_certificate(pem).public_bytes(PemEncoding.DER)


def _open_certificate(directory: Path) -> Read:
    ca = _written(directory / "ca.pem", AUTHORITY)
    key = _written(directory / "bank.key", KEY)

    def read(data: bytes) -> None:
        path = _written(directory / "bank.pem", data)
        verify_issued_by(data, AUTHORITY, datetime.now(UTC))
        verify_issued_by(CERTIFICATE, data, datetime.now(UTC))
        for one in (
            lambda: read_certificates(path),
            lambda: load_credentials(CredentialFiles(path, key, ca), client_of("trial", "bank")),
            lambda: load_credentials(CredentialFiles(ca, key, path)),
        ):
            try:
                one()
            except LaserError as error:
                str(error).encode()

    return read


def _open_key_file(directory: Path) -> Read:
    ca = _written(directory / "ca.pem", AUTHORITY)
    certificate = _written(directory / "bank.pem", CERTIFICATE)

    def read(data: bytes) -> None:
        path = _written(directory / "bank.key", data)
        try:
            read_key(path)
        finally:
            load_credentials(CredentialFiles(certificate, path, ca))

    return read


def _key_asn1() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        key = read_key(_written(Path(name) / "key", KEY))
    return key.private_bytes(PemEncoding.DER, PrivateFormat.PKCS8, NoEncryption())


def _open_request(directory: Path) -> Read:
    return lambda data: read_request(_written(directory / "bank.csr", data))


def _open_tokens(directory: Path) -> Read:
    def read(data: bytes) -> None:
        Tokens(_written(directory / "tokens.txt", data)).application("a" * 40)

    return read


TOKENS = (
    f"# who may ask\ncrm {'a' * 40}\nshop-floor {'0b' * 32}\n"
    f"archive sha256:{'0c' * 32} unknown 2030-01-01T00:00:00Z\n"
)


# -- the coordinator's state


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(started("a", "b").federation.snapshot()))
    return document


DOCUMENT = _document()


def _open_document(directory: Path) -> Read:
    """A document as a release before this one wrote it: with nothing that vouches for it."""
    store = Store(directory)
    store.save("settings", DOCUMENT)

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        store._db.execute("DELETE FROM document WHERE key = 'sha256'")
        store._db.execute("UPDATE document SET value = ? WHERE key = 'federation'", (text,))
        for settings in ("settings", "others"):
            try:
                StatePersister(store, settings).recall(Play("a", "b").federation)
            except LaserError as error:
                str(error).encode()

    read(json.dumps(DOCUMENT).encode())
    return read


def _database() -> bytes:
    with tempfile.TemporaryDirectory() as name:
        store = Store(Path(name))
        store.save("settings", DOCUMENT)
        store._db.execute(
            "INSERT INTO groups VALUES ('run-1', 'a', 'train', 0, '3', 1, ?)", (bytes(8),)
        )
        store.close()
        with sqlite3.connect(Path(name) / FILE) as db:
            db.execute("PRAGMA journal_mode=DELETE")
        db.close()
        return (Path(name) / FILE).read_bytes()


def _open_database(directory: Path) -> Read:
    def read(data: bytes) -> None:
        for path in directory.glob(f"{FILE}*"):
            path.unlink()
        _written(directory / FILE, data)
        store = Store(directory)
        try:
            persister = StatePersister(store, "settings")
            persister.recall(Play("a", "b").federation)
            store.load_results("run-1")
        finally:
            store.close()

    return read


def _open_history(directory: Path) -> Read:
    def read(data: bytes) -> None:
        _written(directory / HISTORY, data)
        RunHistory(directory, "state")

    return read


LINE = json.dumps({"time": 1.5, "event": "finished", "members": ["a", "b"], "run": "run-1"})


# -- experiments, plans


def _open_record(directory: Path) -> Read:
    def read(data: bytes) -> None:
        _written(directory / "experiment.json", data)
        read_record(directory)
        write_record(directory, "grid", {"x": ["y"]})

    return read


def _open_results(directory: Path) -> Read:
    def read(data: bytes) -> None:
        _written(directory / "results.jsonl", data)
        read_lines(directory)

    return read


def _open_overlaps(directory: Path) -> Read:
    return lambda data: groups_of_overlaps(
        _written(directory / "overlaps.json", data), ("bank", "shop"), "train"
    )


OVERLAPS = {
    "tables": {
        "train": {
            "patterns": [
                {"blocks": ["bank"], "num_samples": 3, "share": 0.5},
                {"blocks": ["bank", "shop"], "num_samples": 3, "share": 0.5},
            ]
        }
    }
}

YAMLS = [path.read_text() for path in sorted((CONFIGS / "digits").glob("*.yaml"))]
YAMLS.append((CONFIGS / "organisation" / "client.yaml").read_text())

TARGETS = [
    Target("configuration", changed_text(YAMLS), _open_config, share=2),
    Target("experiment", changed_text([EXPERIMENT]), _open_experiment),
    Target("csv", changed_text([CSV]), _open_table(".csv"), share=2),
    Target("parquet", changed_bytes([_parquet()]), _open_table(".parquet"), share=2),
    Target("npz", changed_bytes([_npz()]), _open_table(".npz"), share=2),
    Target("ids", changed_text(["id\na\n1\n", '"id","x"\n"a ""b",2\n']), _open_ids),
    Target(
        "certificate",
        changed_bytes([_asn1(CERTIFICATE), _asn1(AUTHORITY)]).map(_pem("CERTIFICATE")),
        _open_certificate,
        share=2,
    ),
    Target("key", changed_bytes([_key_asn1()]).map(_pem("PRIVATE KEY")), _open_key_file),
    Target("signing-request", changed_bytes([REQUEST]), _open_request),
    Target(
        "id-secret",
        changed_bytes([b"a" * 40, b"\n"]),
        lambda directory: lambda data: read_secret(_written(directory / "id.secret", data)),
    ),
    Target("tokens", changed_text([TOKENS]), _open_tokens),
    Target("coordinator-document", changed_json([DOCUMENT]), _open_document, share=2),
    Target("coordinator-database", changed_bytes([_database()]), _open_database, share=2),
    Target("runs", changed_text([f"{LINE}\n{LINE}\n"]), _open_history),
    Target("experiment-record", changed_json([{"kind": "grid", "notes": {}}]), _open_record),
    Target("results", changed_text(['{"key": "x"}\n']), _open_results),
    Target("overlaps", changed_json([OVERLAPS]), _open_overlaps),
]
