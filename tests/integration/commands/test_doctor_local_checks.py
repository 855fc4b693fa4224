"""What `doctor` finds in files and at ports of this machine, and how it ends."""

import json
import re
import socket
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID
from doctor_servers import server_context, serving

from laser_vfl.cli.doctor import local_checks as doctor_local
from laser_vfl.cli.doctor.doctor_command import examine, run_doctor
from laser_vfl.cli.doctor.own_certificate import check_certificate
from laser_vfl.core.errors import ExitCode
from laser_vfl.security.authority import certificate_pem, key_pem, names_of, new_key, subject_of
from laser_vfl.security.certificate_files import init_authority, issue, load_authority, renew
from laser_vfl.security.credentials import CredentialFiles
from laser_vfl.security.identity import client_of, coordinator_of

pytestmark = pytest.mark.core

BANK, SHOP = client_of("churn", "bank"), client_of("churn", "shop")
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture
def bank(tmp_path):
    """A client's configuration without a fault, but that there is no coordinator."""
    issue(init_authority(tmp_path, "churn", now=NOW), tmp_path, [BANK, SHOP], now=NOW)
    (tmp_path / "bank.csv").write_text("id,age,y\n1,30,no\n2,40,yes\n")
    (tmp_path / "id.secret").write_text("a secret of all the clients\n")
    (tmp_path / "id.secret").chmod(0o600)
    return {
        "federation": "churn",
        "name": "bank",
        "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:1",
        "state": "state",
        "id_secret_file": "id.secret",
        "device": "cpu",
        "threads": 1,
        "data": {"train": "bank.csv", "id": "id", "label": "y"},
        "tls": {"ca": "ca.pem", "cert": "bank.pem", "key": "bank.key"},
    }


def found(tmp_path, config, *, insecure=False):
    """Everything that is found, by check, the last of each."""
    path = tmp_path / "bank.yaml"
    path.write_text(yaml.safe_dump(config))
    return {finding.check: finding for finding in examine(path, insecure=insecure)}


def failures(findings):
    return {check for check, finding in findings.items() if finding.status == "FAIL"}


def fails(finding, code, said):
    assert (finding.status, finding.exit_code) == ("FAIL", code), finding
    assert said in finding.message, finding
    assert finding.fix


def files_in(folder):
    return sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))


def test_all_but_the_coordinator_is_well_and_nothing_changes(tmp_path, bank):
    found(tmp_path, bank)
    before = files_in(tmp_path)
    findings = {f.check: f for f in examine(tmp_path / "bank.yaml", insecure=False)}
    assert files_in(tmp_path) == before
    assert failures(findings) == {"coordinator"}
    assert [f.check for f in findings.values() if f.status == "warn"] == []
    fails(findings["coordinator"], ExitCode.ADDRESS, "refuses connections")
    assert "client bank of federation churn" in findings["config"].message
    assert "1 of them features" in findings["data.train"].message
    assert "29 days left" in findings["certificate"].message
    assert "signed by" in findings["chain"].message


def test_what_is_required_of_the_coordinator_is_shown(tmp_path, bank):
    said = found(tmp_path, bank)["require"]
    assert (said.status, said.message) == ("ok", "nothing: this client joins on any settings")
    bank |= {"require": {"masked_gradients": True, "max_epochs": 5}, "roster": ["bank", "shop"]}
    said = found(tmp_path, bank)["require"]
    assert said.message == "masked gradients, at most 5 epochs a run, the roster bank, shop"


def test_text_is_a_line_each_and_the_code_is_of_the_first_failure(tmp_path, bank, capsys):
    bank["data"]["id"] = "ident"
    found(tmp_path, bank)
    code = run_doctor(tmp_path / "bank.yaml", insecure=False, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert code == ExitCode.DATA
    assert all(re.match(r"(ok   |warn |FAIL ) [a-z_.]+ +\S", line) for line in lines), lines
    assert [line for line in lines if line.startswith("FAIL  data.train ")] == [
        f'FAIL  data.train     {tmp_path}/bank.csv: there is no id column "ident" '
        '→ the file has "id", "age", "y"'
    ]


def test_json_is_one_object(tmp_path, bank, capsys):
    found(tmp_path, bank)
    code = run_doctor(tmp_path / "bank.yaml", insecure=False, as_json=True)
    result = json.loads(capsys.readouterr().out)
    assert (code, result["ok"]) == (ExitCode.ADDRESS, False)
    last = result["findings"][-1]
    assert (last["status"], last["check"], last["exit_code"]) == ("FAIL", "coordinator", 4)
    assert last["fix"]
    assert result["findings"][0]["fix"] is None


def test_a_mistake_in_the_file_is_placed_and_ends_it(tmp_path, bank):
    bank["listen"] = "nowhere"
    findings = found(tmp_path, bank)
    assert list(findings) == ["release", "config"]
    fails(findings["config"], ExitCode.CONFIG, "bank.yaml:")
    assert re.search(r"bank\.yaml:\d+:\d+: listen: ", findings["config"].message)
    findings = found(tmp_path, {"federation": "churn", "clients": ["bank"]})
    fails(findings["config"], ExitCode.CONFIG, "listen")


def test_a_secret_that_others_may_read_is_refused_as_by_the_daemon(tmp_path, bank):
    (tmp_path / "id.secret").chmod(0o644)
    (tmp_path / "bank.key").chmod(0o604)
    findings = found(tmp_path, bank)
    fails(findings["id_secret_file"], ExitCode.CONFIG, "by others than its owner")
    fails(findings["key"], ExitCode.IDENTITY, "by others than its owner")
    for check in ("id_secret_file", "key"):
        assert findings[check].fix.startswith("chmod 600 ")


def test_files_that_are_not_there(tmp_path, bank):
    bank["id_secret_file"] = "absent"
    bank["data"]["test"] = "absent.csv"
    bank["serving"] = {"tokens_file": "tokens"}
    (tmp_path / "tokens").write_text("crm short\n")
    (tmp_path / "tokens").chmod(0o600)
    findings = found(tmp_path, bank)
    fails(findings["id_secret_file"], ExitCode.CONFIG, "not there")
    fails(findings["data.test"], ExitCode.DATA, "no such file")
    fails(findings["tokens_file"], ExitCode.CONFIG, "tokens:1")


def test_a_serving_table_needs_no_label(tmp_path, bank):
    (tmp_path / "serve.csv").write_text("id,age\n2,40\n")
    bank["data"] |= {"serve": "serve.csv"}
    assert found(tmp_path, bank)["data.serve"].status == "ok"


@pytest.mark.parametrize(
    ("section", "wrong", "check", "code", "said", "fix"),
    [
        (
            "model",
            {"representation": "transformer"},
            "model",
            ExitCode.CONFIG,
            "model.representation",
            "mlp",
        ),
        ("model", {"fusion": "max"}, "model", ExitCode.CONFIG, "model.fusion", "linear"),
        (
            "data",
            {"exclude": ["incom"]},
            "data.train",
            ExitCode.DATA,
            'bank.csv: there is no column to `exclude` "incom"',
            '"income"',
        ),
        (
            "data",
            {"positive": "maybe"},
            "data.label",
            ExitCode.DATA,
            'bank.csv: the positive class "maybe" is not in the label',
            "`positive`",
        ),
    ],
)
def test_names_that_stand_for_nothing_are_found(
    tmp_path, bank, section, wrong, check, code, said, fix
):
    (tmp_path / "bank.csv").write_text("id,age,income,y\n1,30,7,no\n2,40,8,yes\n")
    right = found(tmp_path, bank)
    assert failures(right) == {"coordinator"}
    bank[section] = bank.get(section, {}) | wrong
    findings = found(tmp_path, bank)
    assert failures(findings) == {"coordinator", check}
    fails(findings[check], code, said)
    assert fix in findings[check].fix


def test_labels_make_a_task(tmp_path, bank):
    bank["data"]["positive"] = "yes"
    assert "binary task with 2 classes" in found(tmp_path, bank)["data.label"].message
    (tmp_path / "bank.csv").write_text("id,age,y\n1,30,no\n")
    fails(found(tmp_path, bank)["data.label"], ExitCode.DATA, "one class")


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ("1,30\n1,40\n", "", "twice"),
        ("1,30\n2,inf\n", "", "infinite"),
        ("1,30\n2,40\n", "2,50\n", "also in"),
        ("1,30\n2,40\n", "3,many\n", "is text"),
    ],
)
def test_rows_are_read_as_a_client_reads_them(tmp_path, bank, train, test, said):
    """Also at one without labels, and in the table for testing."""
    del bank["data"]["label"]
    (tmp_path / "bank.csv").write_text("id,age\n1,30\n2,40\n")
    assert found(tmp_path, bank)["data.rows"].message == "2 to train"
    (tmp_path / "bank.csv").write_text(f"id,age\n{train}")
    if test:
        (tmp_path / "test.csv").write_text(f"id,age\n{test}")
        bank["data"]["test"] = "test.csv"
    fails(found(tmp_path, bank)["data.rows"], ExitCode.DATA, said)


def test_a_state_directory_that_cannot_be_made(tmp_path, bank):
    for state in ("bank.csv/state", "x" * 300):
        bank["state"] = state
        fails(found(tmp_path, bank)["state"], ExitCode.CONFIG, "cannot be written")


def test_little_room(tmp_path, bank, monkeypatch):
    model = tmp_path / "state" / "models" / "run" / "model.safetensors"
    model.parent.mkdir(parents=True)
    model.write_bytes(bytes(1000))
    free = 1 << 30
    monkeypatch.setattr(
        doctor_local.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free})
    )
    assert found(tmp_path, bank)["disk"].status == "ok"
    monkeypatch.setattr(doctor_local, "MIN_FREE_BYTES", 1)
    free = 2000
    assert found(tmp_path, bank)["disk"].status == "ok"
    free = 1999
    assert found(tmp_path, bank)["disk"].status == "warn"


def test_a_device_that_is_not_there(tmp_path, bank):
    bank["device"] = "cuda:99"
    fails(found(tmp_path, bank)["device"], ExitCode.CONFIG, "cuda:99 is not there")
    bank |= {"device": "cpu", "threads": 4096}
    assert found(tmp_path, bank)["device"].status == "warn"


def test_names_that_nobody_has(tmp_path, bank):
    bank["coordinator"] = "nowhere.invalid:7000"
    findings = found(tmp_path, bank)
    fails(findings["dns"], ExitCode.ADDRESS, "coordinator: no host is known by the name nowhere")
    assert "coordinator" not in findings
    bank |= {"coordinator": "127.0.0.1:1", "advertise": "bank.invalid:7001"}
    path = tmp_path / "bank.yaml"
    path.write_text(yaml.safe_dump(bank))
    dns = [f for f in examine(path, insecure=False) if f.check == "dns"]
    fails(dns[0], ExitCode.ADDRESS, "advertise: no host is known by the name bank.invalid")
    assert dns[1].status == "ok"


def test_a_port_is_free_or_ours_or_somebody_elses(tmp_path, bank):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = f"127.0.0.1:{taken.getsockname()[1]}"
    assert "free" in found(tmp_path, bank | {"listen": free})["listen"].message
    trust = tmp_path / "ca.pem"
    for name, is_ours in (("bank", True), ("shop", False)):
        with serving(server_context(tmp_path / name, trust)) as address:
            findings = found(tmp_path, bank | {"predict_listen": str(address)})
        if is_ours:
            assert findings["predict_listen"].status == "ok"
            assert "the daemon is up" in findings["predict_listen"].message
        else:
            fails(findings["predict_listen"], ExitCode.ADDRESS, "in use by somebody else")
    findings = found(tmp_path, bank | {"listen": "192.0.2.1:7001"})
    fails(findings["listen"], ExitCode.ADDRESS, "cannot listen on 192.0.2.1:7001")


def test_plaintext_has_to_be_asked_for(tmp_path, bank):
    del bank["tls"]
    findings = found(tmp_path, bank)
    fails(findings["tls"], ExitCode.IDENTITY, "no tls section")
    assert findings["network"].status == "warn"
    assert "coordinator" not in findings
    assert failures(found(tmp_path, bank, insecure=True)) == {"coordinator"}
    bank["listen"] = "10.0.0.1:7001"
    fails(found(tmp_path, bank, insecure=True)["tls"], ExitCode.IDENTITY, "only on loopback")


def test_a_coordinator_is_told_by_its_keys(tmp_path):
    issue(init_authority(tmp_path, "churn", now=NOW), tmp_path, [coordinator_of("churn")], now=NOW)
    config = {
        "federation": "churn",
        "listen": "127.0.0.1:0",
        "state": "state",
        "clients": ["bank"],
        "training": {"representation_dim": 8, "batch_size": 16, "epochs": 1},
        "tls": {"ca": "ca.pem", "cert": "coordinator.pem", "key": "coordinator.key"},
    }
    findings = found(tmp_path, config)
    assert {finding.status for finding in findings.values()} == {"ok"}, findings
    assert "the coordinator of federation churn" in findings["config"].message
    assert not {"device", "coordinator", "clients"} & findings.keys()
    assert not (tmp_path / "state").exists()


def checked(folder, me=BANK, name="bank", now=NOW, key=None, **trust):
    files = CredentialFiles(
        folder / f"{name}.pem",
        folder / f"{key or name}.key",
        **(trust or {"ca": folder / "ca.pem"}),
    )
    return {finding.check: finding for finding in check_certificate(files, me, now)}


def test_certificates_end(tmp_path, bank):
    assert checked(tmp_path, now=NOW + 22 * DAY)["certificate"].status == "ok"
    soon = checked(tmp_path, now=NOW + 24 * DAY)
    assert soon["certificate"].status == "warn"
    assert "renew" in soon["certificate"].fix
    assert failures(soon) == set()
    fails(checked(tmp_path, now=NOW + 31 * DAY)["certificate"], ExitCode.IDENTITY, "has expired")
    early = checked(tmp_path, now=NOW - DAY)["certificate"]
    fails(early, ExitCode.IDENTITY, "is valid from")
    assert "clock" in early.fix


def test_an_authority_ends(tmp_path):
    authority = init_authority(tmp_path, "churn", days=3, now=NOW - 2 * DAY)
    issue(authority, tmp_path, [BANK], now=NOW)
    assert checked(tmp_path)["authority"].status == "warn"
    issue(init_authority(tmp_path / "new", "churn", now=NOW), tmp_path / "new", [BANK], now=NOW)
    findings = checked(tmp_path / "new", now=NOW + 2 * DAY, ca=tmp_path / "ca.pem")
    fails(findings["authority"], ExitCode.IDENTITY, "has expired")


def test_a_certificate_names_exactly_this_daemon(tmp_path, bank):
    findings = checked(tmp_path, name="shop")
    fails(findings["certificate"], ExitCode.IDENTITY, "names spiffe://churn/client/shop, not")
    fails(checked(tmp_path, name="ca")["certificate"], ExitCode.IDENTITY, "names nobody")


def test_a_key_of_another_certificate(tmp_path, bank):
    fails(checked(tmp_path, key="shop")["key"], ExitCode.IDENTITY, "of another certificate")
    (tmp_path / "bank.key").write_text("no key")
    fails(checked(tmp_path)["key"], ExitCode.IDENTITY, "no private key")


def test_a_certificate_of_a_foreign_authority(tmp_path, bank):
    init_authority(tmp_path / "foreign", "churn", now=NOW)
    foreign = tmp_path / "foreign" / "ca.pem"
    fails(checked(tmp_path, ca=foreign)["chain"], ExitCode.IDENTITY, "not from our authority")
    own = {"bank": tmp_path / "ca.pem", "shop": foreign}
    assert checked(tmp_path, authorities=own)["chain"].status == "ok"
    missing = checked(tmp_path, authorities={"shop": foreign})["chain"]
    assert (missing.status, "no authority for bank" in missing.message) == ("warn", True)
    leaf = checked(tmp_path, ca=tmp_path / "shop.pem")
    fails(leaf["authority"], ExitCode.IDENTITY, "is no authority's certificate")


def test_an_authority_may_have_a_successor_in_its_file(tmp_path, bank):
    init_authority(tmp_path / "next", "churn", now=NOW)
    both = tmp_path / "both.pem"
    both.write_bytes(
        (tmp_path / "next" / "ca.pem").read_bytes() + (tmp_path / "ca.pem").read_bytes()
    )
    assert checked(tmp_path, ca=both)["chain"].status == "ok"


def test_an_authority_need_not_be_at_the_root(tmp_path, bank):
    authority, root = load_authority(tmp_path), new_key()
    builder = x509.CertificateBuilder(
        issuer_name=subject_of(SHOP),
        subject_name=authority.certificate.subject,
        public_key=authority.key.public_key(),
        serial_number=1,
        not_valid_before=NOW - DAY,
        not_valid_after=NOW + 30 * DAY,
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    (tmp_path / "below.pem").write_bytes(certificate_pem(builder.sign(root, hashes.SHA256())))
    assert checked(tmp_path, ca=tmp_path / "below.pem")["chain"].status == "ok"


def test_a_certificate_for_callers_alone(tmp_path, bank):
    authority, key = load_authority(tmp_path), new_key()
    purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = x509.CertificateBuilder(
        issuer_name=authority.certificate.subject,
        subject_name=subject_of(BANK),
        public_key=key.public_key(),
        serial_number=1,
        not_valid_before=NOW - DAY,
        not_valid_after=NOW + 30 * DAY,
    )
    for extension in (purposes, names_of(BANK)):
        builder = builder.add_extension(extension, critical=False)
    (tmp_path / "bank.pem").write_bytes(
        certificate_pem(builder.sign(authority.key, hashes.SHA256()))
    )
    (tmp_path / "bank.key").write_bytes(key_pem(key))
    fails(checked(tmp_path)["chain"], ExitCode.IDENTITY, "not for both servers and clients")


def test_an_expired_certificate_is_told_once(tmp_path, bank):
    authority = load_authority(tmp_path)
    renew(authority, tmp_path, [BANK], days=1, now=NOW - 3 * DAY)
    findings = found(tmp_path, bank)
    assert failures(findings) == {"certificate", "coordinator"}
    fails(findings["certificate"], ExitCode.IDENTITY, "has expired on")
