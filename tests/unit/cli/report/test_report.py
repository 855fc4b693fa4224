"""The command `report`: what it reads, what it writes, and what it says when it cannot."""

import json
import subprocess
import sys

import pytest
import yaml
from cli_views import RUN, additive, scores_of

from laser_vfl.cli.report.report_command import ReportOptions, run_report
from laser_vfl.core.errors import ConfigError, DataError, LaserError, MismatchError, NotReady

ROSTER = ["bank", "shop", "telco"]


def manifest_of(client, /, **more):
    """What the report needs of a manifest, with much else that it does not."""
    return {
        "version": 3,
        "run": RUN,
        "release": "0.1.0",
        "federation": "churn",
        "client": ROSTER[client],
        "roster": ROSTER,
        "heads": ["bank", "shop"],
        "addresses": {"shop": "127.0.0.1:7002"},
        "labels": {"task": "multiclass", "classes": ["a", "b", "c"]},
        "scores": {
            "task": "multiclass",
            "overall": {"accuracy": 0.5},
            **scores_of(client, ROSTER, additive),
        },
        "sha256": "0",
        **more,
    }


class Site:
    """The files of clients on one machine; no daemon is up."""

    def __init__(self, path):
        self.path = path

    def client(self, name, manifest=None, **more):
        config = {
            "federation": "churn",
            "name": name,
            "listen": "127.0.0.1:0",
            "coordinator": "127.0.0.1:7000",
            "state": f"./{name}-state",
            "data": {"train": f"{name}.csv", "id": "id"},
            **more,
        }
        path = self.path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        if manifest is not None:
            models = self.path / f"{name}-state" / "models"
            (models / RUN).mkdir(parents=True)
            (models / RUN / "manifest.json").write_text(json.dumps(manifest))
            (models.parent / "model").symlink_to(f"models/{RUN}")
        return path


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def refused(kind, options, *, as_json=False):
    with pytest.raises(LaserError) as caught:
        run_report(options, as_json=as_json)
    assert type(caught.value) is kind
    return str(caught.value)


def printed(capsys, options):
    run_report(options, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_one_client_from_its_state(site, capsys):
    config = site.client("bank", manifest_of(0))
    report = printed(capsys, ReportOptions([config]))
    assert (report["federation"], report["run"], report["clients"]) == ("churn", RUN, ["bank"])
    assert report["shapley"]["own"] == "bank"
    # The state is only read.
    assert sorted(p.name for p in (site.path / "bank-state").iterdir()) == ["model", "models"]


def test_several_clients_by_their_files_or_by_their_reports(site, capsys):
    bank, shop = site.client("bank", manifest_of(0)), site.client("shop", manifest_of(1))
    telco = site.client("telco", manifest_of(2, labels=None, scores=None))
    together = printed(capsys, ReportOptions([bank, shop, telco]))
    assert together["heads"] == ["bank", "shop"]
    # The telco has no head, and so no report of its own.
    path = site.path / "shop.json"
    path.write_text(json.dumps(printed(capsys, ReportOptions([shop]))))
    by_files = printed(capsys, ReportOptions([bank], [path]))
    for key in ("shapley", "curve", "subsets", "by_head", "constant", "all_blocks"):
        assert by_files[key] == together[key]
    both = site.path / "both.json"
    both.write_text(json.dumps(together))
    assert printed(capsys, ReportOptions([], [both])) == together


def test_files_are_written_and_replaced(site, capsys):
    config, out = site.client("bank", manifest_of(0)), site.path / "new" / "report"
    for _ in range(2):
        run_report(ReportOptions([config], out=out), as_json=False)
        assert f"written to {out}: report.json, report.md and report.png" in capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"report.json", "report.md", "report.png"}
    assert (out / "report.png").read_bytes().startswith(b"\x89PNG")
    report = json.loads((out / "report.json").read_text())
    assert report == printed(capsys, ReportOptions([config]))
    assert (out / "report.md").read_text().startswith("# What each block is worth: churn\n")


def test_a_client_without_a_model(site):
    text = refused(NotReady, ReportOptions([site.client("bank")]))
    assert "bank has no model yet; ask again when training has finished" in text


def test_a_client_without_labels_or_without_a_test_table(site):
    telco = site.client("telco", manifest_of(2, labels=None, scores=None))
    assert "telco has no head to report on" in refused(NotReady, ReportOptions([telco]))
    bank = site.client("bank", manifest_of(0, scores=None))
    assert "set `data.test`" in refused(NotReady, ReportOptions([bank]))


def test_clients_of_different_runs(site):
    bank = site.client("bank", manifest_of(0))
    shop = site.client("shop", manifest_of(1, run="another"))
    assert "shop of run another" in refused(MismatchError, ReportOptions([bank, shop]))


def test_a_state_of_somebody_else(site):
    config = site.client("bank", manifest_of(1))
    assert "its state has a model of shop" in refused(MismatchError, ReportOptions([config]))


def test_a_coordinator_is_not_told_scores(site):
    path = site.path / "coordinator.yaml"
    training = {"representation_dim": 8, "batch_size": 8, "epochs": 1}
    config = {"federation": "churn", "listen": "127.0.0.1:0", "state": "./c", "clients": ROSTER}
    path.write_text(yaml.safe_dump({**config, "training": training}))
    text = refused(ConfigError, ReportOptions([path]))
    assert "no client tells its coordinator" in text
    assert "give --config of each client" in text


def test_nobody(site):
    assert "give --config of a client" in refused(ConfigError, ReportOptions([]))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        ('{"task": 1}', "this is not a report"),
        ('{"views": [{}]}', "cannot be used (at federation)"),
        ('{"views": [3]}', "cannot be used"),
    ],
)
def test_a_report_that_is_none(site, content, what):
    path = site.path / "shop.json"
    if content is not None:
        path.write_text(content)
    text = refused(DataError, ReportOptions([site.client("bank", manifest_of(0))], [path]))
    assert what in text
    assert "shop.json" in text


WRONG = {
    "a roster with a name twice": {"roster": ["bank", "bank", "telco"]},
    "a client that is not of the roster": {"client": "gym"},
    "a name that is none": {"client": "[bold]bank"},
    "a head that is not of the roster": {"heads": ["gym"]},
    "a subset with somebody else": {"scores": {"by_subset": {"bank,gym": {"accuracy": 1}}}},
    "a subset without the client": {"scores": {"by_subset": {"shop": {"accuracy": 1}}}},
    "an order that lacks somebody": {"scores": {"by_subset": {}, "orders": [["bank", "bank"]]}},
    "a score that is none": {"scores": {"by_subset": {"bank": {"accuracy": float("nan")}}}},
    "a task that is none": {"labels": {"task": "guessing"}},
    "a run that is none": {"run": "../.."},
}


@pytest.mark.parametrize("case", WRONG)
def test_what_does_not_fit_together_is_refused(site, case):
    config = site.client("bank", manifest_of(0, **WRONG[case]))
    assert "cannot be used" in refused(DataError, ReportOptions([config]))


def test_an_out_that_cannot_be_written_is_refused_first(site):
    # There is no configuration here: nothing else has been looked at.
    file = site.path / "file"
    file.touch()
    for out in (file, file / "below"):
        text = refused(ConfigError, ReportOptions([site.path / "none.yaml"], out=out))
        assert "cannot be written" in text
        assert "give another --out" in text
    config = site.client("bank", manifest_of(0))
    (site.path / "out" / "report.md").mkdir(parents=True)
    text = refused(ConfigError, ReportOptions([config], out=site.path / "out"))
    assert "report.md: cannot be written (Is a directory)" in text
    assert not list((site.path / "out").glob(".*"))


def test_without_matplotlib_the_command_to_install_it_is_given(site, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    text = refused(ConfigError, ReportOptions([], out=site.path / "out"))
    assert "pip install 'laser-vfl[plot]'" in text


def test_a_report_needs_no_torch(site):
    """Importing it takes longer than everything else."""
    config = site.client("bank", manifest_of(0))
    program = (
        "import sys; from pathlib import Path; from laser_vfl.cli.report.report_command import *;"
        f"run_report(ReportOptions([Path({str(config)!r})]), as_json=True);"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
