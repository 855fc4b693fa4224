"""Files that somebody has tampered with: nothing in them is run, and what is wrong is said."""

import hashlib
import json
import os
import pickle
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from attacked_federation import outcome
from test_access import GARBAGE, NOBODYS

from laser_vfl.remote.calls import Access, client_access, open_channel
from laser_vfl.security.access import ACCESS
from laser_vfl.security.token_file import Token, hash_of
from laser_vfl.v1 import prediction_pb2 as pb
from laser_vfl.v1.prediction_pb2_grpc import PredictionStub
from tests.support.attacks.attack_results import Results
from tests.support.attacks.every_call import METHODS, call
from tests.support.daemons.federation import Federation
from tests.support.daemons.harness import Site, eventually
from tests.support.trials.faults import Fault
from tests.support.trials.trial import Trial

TOKEN = "0123456789abcdef" * 2
WRONG_TOKEN = TOKEN[:-1] + "0"
ENDED_TOKEN = "fedcba9876543210" * 2
MOST_GROWTH = 200e6
"""How much more memory a client may take when a table has a cell of 10 MB."""

FORMULAS = ["=cmd|' /C calc'!A0", "@SUM(1+1)", "+1+1", "-1+1"]


@dataclass(frozen=True)
class Trap:
    """Unpickled, it touches a file."""

    path: str

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


@pytest.fixture(scope="module")
def alone(shared_site: Site) -> Federation:
    """A client that has trained alone, and takes tokens."""
    path = shared_site.path / "tokens.txt"
    over = datetime(2026, 1, 1, tzinfo=UTC)
    ended = Token("old", hash_of(ENDED_TOKEN), over - timedelta(days=1), over)
    path.write_text(f"crm {TOKEN}\n{ended.line()}\n")
    path.chmod(0o600)
    return Federation(shared_site, ["bank"], {}, serving={"tokens_file": "tokens.txt"}, token=TOKEN)


def _door(alone: Federation, token: str | None) -> grpc.Channel:
    """Return a channel to where bank predicts, of somebody with a token, or with nothing."""
    address = alone.clients["bank"].wait_predict()
    assert alone.site.authority is not None
    ca, name = alone.site.authority.issue("bank")["ca"], "bank.client.trial"
    if token is None:
        access = Access(grpc.ssl_channel_credentials(Path(ca).read_bytes()), name)
    else:
        access = client_access(address, ca, None, None, token, name)
    return open_channel(address, access)


def _ask(alone: Federation, token: str | None) -> str:
    request = pb.PredictRequest(ids=alone.ids)
    with _door(alone, token) as channel:
        return outcome(lambda: PredictionStub(channel).Predict(request, timeout=10))


def _ask_in_plaintext(alone: Federation, token: str) -> str:
    address = alone.clients["bank"].wait_predict()
    request, metadata = pb.PredictRequest(ids=alone.ids), [("authorization", f"Bearer {token}")]
    with open_channel(address, client_access(address, None, None, None)) as channel:
        stub = PredictionStub(channel)
        return outcome(lambda: stub.Predict(request, timeout=10, metadata=metadata))


def test_tokens(alone: Federation, results: Results) -> None:
    results.note("right token", _ask(alone, TOKEN))
    results.note("wrong token", _ask(alone, WRONG_TOKEN))
    results.note("wrong token", _ask(alone, ""), "an empty token")
    results.note("no token", _ask(alone, None))
    results.note("expired token", _ask(alone, ENDED_TOKEN))
    results.note("hash of a token", _ask(alone, hash_of(TOKEN).hex()))
    results.note("hash of a token", _ask(alone, f"sha256:{hash_of(TOKEN).hex()}"), "as it stands")
    results.note("token in plaintext", _ask_in_plaintext(alone, TOKEN))


@pytest.mark.parametrize("token", [TOKEN, WRONG_TOKEN, None], ids=["right", "wrong", "none"])
def test_a_token_opens_what_the_table_says(
    token: str | None, alone: Federation, results: Results
) -> None:
    """Its owner is an application, whatever it calls; without one, nobody may call anything."""
    with _door(alone, token) as channel:
        for path in METHODS["predictions"]:
            may_call = path not in NOBODYS and "application" in ACCESS[path].parties
            found = outcome(lambda path=path: call(channel, path, [GARBAGE]))  # type: ignore[misc]
            name = "random bytes" if token == TOKEN and may_call else "another's call"
            results.note(name, found, f"{path} with token {token}")


@pytest.mark.core
@pytest.mark.parametrize("name", ["pickle as a model", "truncated model"])
def test_a_model_that_is_none(name: str, alone: Federation, results: Results) -> None:
    site = alone.site
    state = site.path / f"{name.split()[0]}-state"
    shutil.copytree(site.path / "bank-state", state, symlinks=True)
    trap = site.path / "model trap"
    model, manifest = state / "model" / "model.safetensors", state / "model" / "manifest.json"
    content = model.read_bytes()[:-8]
    if name == "pickle as a model":
        content = pickle.dumps(Trap(str(trap)))
    model.write_bytes(content)
    vouched = json.loads(manifest.read_text())
    vouched["sha256"] = hashlib.sha256(content).hexdigest()
    manifest.write_text(json.dumps(vouched))
    config = site.client_config("bank", state=f"./{state.name}", data=_data("bank"))
    process = site.start_client(config, file=state.name)
    exit_code = process.wait_exit()
    (line,) = process.stderr.splitlines()[-1:]
    assert "the model cannot be used: model.safetensors does not hold tensors" in line
    assert "Traceback" not in process.stderr
    assert not trap.exists()
    results.note(name, f"exit code {exit_code}")


HUBCONF = """import os
import torch


def model(**kwargs):
    os.mkdir("{trap}")
    return torch.nn.Linear(1, 1)
"""


def _loading(site: Site, repository: str, trap: str) -> dict[str, Any]:
    """Return a model of one's own that makes a directory when it is built, by torch.hub."""
    directory = site.path / repository
    directory.mkdir(exist_ok=True)
    code = HUBCONF.format(trap=site.path / trap)
    (directory / "hubconf.py").write_text(code)
    options = {"repo_or_dir": str(directory), "model": "model", "source": "local"}
    return {"representation": "torch.hub:load", "representation_options": options}


@pytest.mark.core
@pytest.mark.parametrize(
    ("name", "configured", "complaint"),
    [
        ("planted hubconf", "mlp", 'representation "torch.hub:load", the configuration mlp'),
        (
            "own model changed",
            "tests.support.data.own_models:dropout",
            'representation "torch.hub:load", the configuration tests.support',
        ),
        ("own model's options changed", "torch.hub:load", 'options for the representation "torch.'),
    ],
)
def test_a_manifest_that_names_code(
    name: str, configured: str, complaint: str, alone: Federation, results: Results
) -> None:
    site = alone.site
    trap = f"{name} trap"
    model: dict[str, Any] = {"representation": configured}
    if configured == "torch.hub:load":
        model = _loading(site, "admitted", "admitted trap")
    state = site.path / f"{name.replace(' ', '-')}-state"
    shutil.copytree(site.path / "bank-state", state, symlinks=True)
    manifest = state / "model" / "manifest.json"
    planted = json.loads(manifest.read_text())
    planted["model"] |= _loading(site, "planted", trap)
    manifest.write_text(json.dumps(planted))
    config = site.client_config("bank", state=f"./{state.name}", data=_data("bank"), model=model)
    process = site.start_client(config, file=state.name)
    exit_code = process.wait_exit()
    (line,) = process.stderr.splitlines()[-1:]
    assert not (site.path / trap).exists(), "it was called"
    assert "Traceback" not in process.stderr
    assert complaint in line, line
    results.note(name, f"exit code {exit_code}")


def test_a_checkpoint_that_is_none(site: Site, results: Results) -> None:
    """Shop comes back with the newest of three checkpoints a pickle, and the second cut short."""
    trap = site.path / "checkpoint trap"
    with Trial(site, slow=True, training={"checkpoint_every": 5}) as trial:
        saved = _three_checkpoints(site)
        trial.inject(Fault("kill", "shop"))
        (directory,) = (site.path / "shop-state").glob("runs/*/checkpoints")
        shutil.rmtree(directory)
        directory.mkdir()
        _, second, newest = sorted(saved)
        for step, (tensors, note) in saved.items():
            content = {newest: pickle.dumps(Trap(str(trap))), second: tensors[:-8]}.get(
                step, tensors
            )
            vouched = json.loads(note)
            vouched |= {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            (directory / f"{step}.safetensors").write_bytes(content)
            (directory / f"{step}.json").write_text(json.dumps(vouched))
        trial.inject(Fault("start", "shop"))
        shop = trial.clients["shop"]
        shop.wait_for("cannot be used", times=2)
        trial.wait_back("shop")
        trial.site.hurry()
        trial.finish()
        assert not trap.exists()
        assert "Traceback" not in site.report()
        for step in (newest, second):
            assert f"{step}.safetensors cannot be used" in shop.stderr
        trial.check()
        for name in ("pickle as a checkpoint", "truncated checkpoint"):
            results.note(name, "an older checkpoint is used")


def test_state_directories_are_private(alone: Federation, results: Results) -> None:
    """Whatever the umask under which the daemons were started."""
    open_to_others = [
        str(path.relative_to(alone.site.path))
        for name in ("bank", "coordinator")
        for path in [alone.site.path / f"{name}-state", *_below(alone.site, f"{name}-state")]
        if not path.is_symlink() and path.stat().st_mode & 0o077
    ]
    found = "nothing is open to others" if not open_to_others else ", ".join(open_to_others)
    results.note("another user of the machine", found)


def _below(site: Site, name: str) -> list[Path]:
    found = list((site.path / name).rglob("*"))
    assert {"listening.json", "audit.jsonl"} <= {path.name for path in found}
    return found


def _three_checkpoints(site: Site) -> dict[int, tuple[bytes, str]]:
    """Collect what shop writes; older ones do not stay."""
    found: dict[int, tuple[bytes, str]] = {}

    def collect() -> bool:
        for note in (site.path / "shop-state").glob("runs/*/checkpoints/[0-9]*.json"):
            try:
                content = note.with_suffix(".safetensors").read_bytes()
                found[int(note.stem)] = content, note.read_text()
            except FileNotFoundError:
                continue
        return len(found) >= 3

    eventually(collect, "there are three checkpoints")
    newest = sorted(found)[-3:]
    return {step: found[step] for step in newest}


def _data(name: str) -> dict[str, str]:
    return {
        "train": f"{name}_train.csv",
        "test": f"{name}_test.csv",
        "id": "id",
        "label": "kind",
    }


def _bomb() -> str:
    """Nine times nine times nine …"""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for before, after in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]")
    return "\n".join(lines)


CONFIGURATIONS = {
    "YAML bomb": _bomb(),
    "YAML tag": "federation: !!python/object/apply:os.mkdir [yaml-trap]\n",
}


@pytest.mark.core
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_that_is_an_attack(name: str, alone: Federation, results: Results) -> None:
    site = alone.site
    (site.path / "attack.yaml").write_text(CONFIGURATIONS[name])
    process = site.run("attack", "client", "run", "--config", "attack.yaml")
    exit_code = process.wait_exit()
    (line,) = process.stderr.splitlines()
    assert line.startswith("attack.yaml:1:"), line
    assert not (site.path / "yaml-trap").exists()
    results.note(name, f"exit code {exit_code}")


@pytest.mark.core
def test_a_csv_with_formulas(alone: Federation, results: Results) -> None:
    """Ids are what they are, in and out; who opens the answer in a spreadsheet is warned."""
    site = alone.site
    lines = (site.path / "bank_test.csv").read_text().splitlines()
    serve = [lines[0].rpartition(",")[0]]
    for formula, line in zip(FORMULAS, lines[1:], strict=False):
        values = line.rpartition(",")[0].split(",")[1:]
        serve.append(",".join([formula, *values]))
    (site.path / "formulas.csv").write_text("\n".join(serve) + "\n")
    shutil.copytree(site.path / "bank-state", site.path / "formula-state", symlinks=True)
    data = {**_data("bank"), "serve": "formulas.csv"}
    config = site.client_config("bank", state="./formula-state", data=data)
    bank = site.start_client(config, file="formula")
    bank.wait_for_served()
    with bank.predictor() as predictor:
        answer = predictor.predict(FORMULAS)
    assert not any(answer.errors)
    assert list(answer.ids) == FORMULAS
    bank.terminate()
    results.note("CSV formula", "text, in and out")


@pytest.mark.core
def test_a_csv_with_a_huge_cell(alone: Federation, results: Results) -> None:
    site = alone.site
    lines = (site.path / "bank_train.csv").read_text().splitlines()
    cells = lines[1].split(",")
    cells[1] = "x" * (10 << 20)
    (site.path / "huge.csv").write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")
    data = {**_data("bank"), "train": "huge.csv"}
    process = site.start_client(
        site.client_config("bank", state="./huge-state", data=data), file="huge"
    )
    most = 0
    while "ready" not in process.stdout:  # it is so once it has read its tables
        assert process.alive, process.stderr
        most = max(most, psutil.Process(process.pid).memory_info().rss)
        time.sleep(0.01)
    usual = psutil.Process(alone.clients["bank"].pid).memory_info().rss
    process.kill()
    assert "Traceback" not in process.stderr
    assert most < usual + MOST_GROWTH, f"{most / 1e6:.0f} MB"
    results.note("CSV with a huge cell", "taken as text")
