"""align: where it finds the daemon, what it makes of the answer, and how it ends."""

import json

import grpc
import pytest

from laser_vfl.cli.align.align_command import AlignOptions, run_align
from laser_vfl.cli.own_daemon import own_daemon
from laser_vfl.core import errors
from laser_vfl.remote.calls import Access
from laser_vfl.remote.operations import align
from laser_vfl.security.certificate_files import make_federation
from laser_vfl.security.credentials import CredentialFiles, load_credentials
from laser_vfl.v1 import prediction_pb2 as pb
from tests.support.fakes.remote_fake import ROSTER, FakePrediction, served

pytestmark = pytest.mark.core

PLAIN = Access()


@pytest.fixture
def daemon():
    daemon = FakePrediction()
    daemon.alignment = alignment({0b001: 10, 0b010: 40, 0b011: 30, 0b100: 0})
    return daemon


@pytest.fixture
def config(tmp_path):
    """Return a function that writes a configuration, and the note that a daemon would leave."""

    def write(predict_listen="127.0.0.1:0", *, note=None, **more):
        path = tmp_path / "bank.yaml"
        fields = {
            "federation": "churn",
            "name": "bank",
            "listen": "127.0.0.1:7001",
            "predict_listen": predict_listen,
            "coordinator": "127.0.0.1:7000",
            "state": "state",
            "id_secret_file": "id.secret",
            "data": {"train": "bank.csv", "id": "id"},
            **more,
        }
        path.write_text(json.dumps(fields), "utf-8")
        if note is not None:
            (tmp_path / "state").mkdir(exist_ok=True)
            (tmp_path / "state" / "listening.json").write_text(note, "utf-8")
        return path

    return write


def alignment(counts, *, members=("bank", "shop", "telco"), client="bank", table="train"):
    overlaps = [pb.Overlap(blocks=mask, num_samples=count) for mask, count in counts.items()]
    tables = [pb.TableOverlap(table=table, num_rows=40, overlaps=overlaps)]
    return pb.AlignResponse(
        client=client, scheme="ecdh", roster=ROSTER, members=members, seconds=1.5, tables=tables
    )


def run(path, *, as_json=True, **options):
    run_align(AlignOptions(path, dry_run=True, **options), as_json=as_json)


def note_of(address):
    return json.dumps({"predict": address})


def test_overlaps_are_counted(daemon):
    with served(daemon) as address:
        found = align(address, PLAIN, 5)
    assert found.pop("tables") == {
        "train": {
            "num_rows": 40,
            "num_samples": 80,
            "num_shared": 30,
            "missing_share": pytest.approx(1 - 110 / 240),
            "patterns": [
                {"blocks": ["shop"], "num_samples": 40, "share": 0.5},
                {"blocks": ["bank", "shop"], "num_samples": 30, "share": 0.375},
                {"blocks": ["bank"], "num_samples": 10, "share": 0.125},
            ],
        }
    }
    assert found == {
        "client": "bank",
        "scheme": "ecdh",
        "roster": list(ROSTER),
        "members": list(ROSTER),
        "absent": [],
        "seconds": 1.5,
    }


def test_blocks_of_the_absent_are_not_missing(daemon):
    daemon.alignment = alignment({0b101: 4, 0b100: 4}, members=["bank", "telco"])
    with served(daemon) as address:
        found = align(address, PLAIN, 5)
    assert found["absent"] == ["shop"]
    assert found["tables"]["train"]["missing_share"] == 0.25


def test_a_table_without_samples(daemon):
    daemon.alignment = alignment({})
    with served(daemon) as address:
        table = align(address, PLAIN, 5)["tables"]["train"]
    assert table["patterns"] == []
    assert table["missing_share"] is None


@pytest.mark.parametrize(
    "broken",
    [
        alignment({0b1000: 1}),
        alignment({0: 1}),
        alignment({0b010: 1}, members=["bank", "telco"]),
        alignment({0b010: 1}, members=["bank", "stranger"]),
        alignment({0b010: 1}, client="stranger"),
        alignment({0b100: 1}, members=["telco"]),
    ],
)
def test_an_answer_that_breaks_the_contract_is_refused(daemon, broken):
    daemon.alignment = broken
    with served(daemon) as address, pytest.raises(errors.ContractError):
        align(address, PLAIN, 5)


def test_a_pattern_is_counted_once(daemon):
    daemon.alignment.tables[0].overlaps.add(blocks=0b011, num_samples=1)
    with served(daemon) as address, pytest.raises(errors.ContractError, match="bank,shop are"):
        align(address, PLAIN, 5)


def test_the_command_finds_a_daemon_by_its_note_or_by_its_port(daemon, config, capsys):
    with served(daemon) as address:
        run(config(note=note_of(address)))
        by_note = json.loads(capsys.readouterr().out)
        run(config(address, note="{}"), as_json=False)
    assert by_note["tables"]["train"]["num_samples"] == 80
    text = capsys.readouterr().out
    assert "bank of federation churn: aligned by ecdh in 1.5 s" in text
    assert "80 samples altogether; 54.2% of their blocks are missing" in text


@pytest.mark.parametrize("note", [None, "", "[]", "{}", '{"predict": 7}', '{"predict": "7"}'])
def test_without_a_note_the_daemon_is_not_up(config, note):
    path = config(note=note)
    with pytest.raises(errors.AddressError) as caught:
        run(path)
    assert str(caught.value) == (
        "the daemon of bank does not seem to be up: it has left no address in its state; "
        f"start it with `laser-vfl client run --config {path}`"
    )


def test_a_daemon_that_is_gone_is_not_up(daemon, config):
    with served(daemon) as address:
        path = config(note=note_of(address))
    with pytest.raises(errors.AddressError) as caught:
        run(path)
    assert f"does not seem to be up: nobody answers at {address}; start it with" in str(
        caught.value
    )


def test_somebody_else_at_the_address_is_not_asked_to_align(daemon, config):
    daemon.status = pb.ClientStatus(client="shop", federation="churn")
    with served(daemon) as address, pytest.raises(errors.MismatchError) as caught:
        run(config(note=note_of(address)))
    assert str(caught.value).startswith(f"{address} is shop of federation churn, not bank of churn")
    assert not daemon.num_aligned


def test_what_the_daemon_says_is_passed_on(daemon, config):
    said = "the coordinator is out of reach"
    trailing = (("laser-vfl-error", "AddressError"),)
    daemon.abort = (grpc.StatusCode.UNAVAILABLE, said, trailing)
    with served(daemon) as address, pytest.raises(errors.AddressError) as caught:
        run(config(note=note_of(address)))
    assert str(caught.value) == said


def test_only_the_dry_run_is_a_command(config):
    with pytest.raises(errors.ConfigError) as caught:
        run_align(AlignOptions(config()), as_json=True)
    assert str(caught.value) == (
        "a run aligns by itself, and only the dry run is a command; add --dry-run"
    )
    with pytest.raises(errors.ConfigError, match="--timeout"):
        run(config(), timeout="soon")


def test_a_daemon_on_all_interfaces_is_found_on_this_machine(config):
    path = config("0.0.0.0:0", note=note_of("0.0.0.0:41234"), advertise="bank.example:7001")
    assert own_daemon(path).address == "127.0.0.1:41234"


def test_a_note_does_not_lead_off_loopback(config):
    path = config(note=note_of("elsewhere.example:41234"))
    assert own_daemon(path).address == "127.0.0.1:41234"


def test_with_tls_it_shows_the_daemons_own_certificate(daemon, config, tmp_path, capsys):
    make_federation(tmp_path / "certs", "churn", ["bank"])
    tls = {"ca": "certs/ca.pem", "cert": "certs/bank.pem", "key": "certs/bank.key"}
    files = CredentialFiles(**{key: tmp_path / path for key, path in tls.items()})
    with served(daemon, credentials=load_credentials(files)) as address:
        run(config(tls=tls, note=note_of(address)))
    assert json.loads(capsys.readouterr().out)["client"] == "bank"
