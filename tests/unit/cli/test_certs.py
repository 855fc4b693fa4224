"""`certs` as people call it: files, what is printed, and how it ends."""

import io
import json
import stat
import sys
from datetime import UTC, datetime, timedelta

import pytest

from laser_vfl.cli.main import main
from laser_vfl.security.certificate_files import init_authority, issue, load_authority
from laser_vfl.security.certificates import read_certificate
from laser_vfl.security.identity import client_of


@pytest.fixture
def certs(monkeypatch, capsys, tmp_path):
    """Run `laser-vfl certs` in an empty directory; return the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(line):
        monkeypatch.setattr(sys, "argv", ["laser-vfl", "certs", *line.split()])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return caught.value.code, captured.out, captured.err

    return run


def made(certs, line):
    """Run a command that has to succeed; return its certificates by file."""
    code, out, err = certs(f"{line} --format json")
    assert code == 0, err
    return {each["file"]: each for each in json.loads(out)["certificates"]}


def refused(certs, line, code, says):
    """Run a command that has to fail with one line."""
    ended, out, err = certs(line)
    assert (ended, out) == (code, ""), err
    assert says in err
    assert err.count("\n") == 1


def test_a_federation_in_two_commands(certs, tmp_path):
    assert list(made(certs, "init --federation churn")) == ["certs/ca.pem"]
    parties = made(certs, "issue --all bank,shop")
    assert {path: each["identity"] for path, each in parties.items()} == {
        "certs/coordinator.pem": "spiffe://churn/coordinator",
        "certs/bank.pem": "spiffe://churn/client/bank",
        "certs/shop.pem": "spiffe://churn/client/shop",
    }
    assert parties["certs/bank.pem"]["dns_names"] == ["bank.client.churn"]
    assert parties["certs/bank.pem"]["issuer"] == "churn authority"
    assert parties["certs/bank.pem"]["days_left"] == 29
    keys = sorted((tmp_path / "certs").glob("*.key"))
    assert [path.stem for path in keys] == ["bank", "ca", "coordinator", "shop"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}


@pytest.mark.parametrize(
    ("options", "path", "uri"),
    [
        ("--coordinator", "certs/coordinator.pem", "spiffe://churn/coordinator"),
        ("--client bank", "certs/bank.pem", "spiffe://churn/client/bank"),
        ("--operator ann", "certs/operator-ann.pem", "spiffe://churn/operator/ann"),
        (
            "--application crm --of bank",
            "certs/bank-crm.pem",
            "spiffe://churn/client/bank/application/crm",
        ),
    ],
)
def test_one_at_a_time(options, path, uri, certs):
    made(certs, "init --federation churn")
    issued = made(certs, f"issue {options} --days 9")
    assert list(issued) == [path]
    assert issued[path]["identity"] == uri
    assert issued[path]["days_left"] == 8
    code, out, _ = certs(f"show {path}")
    assert code == 0
    assert uri in out


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("init --federation Churn", 2, "names nobody"),
        ("init --federation loans", 5, "certs/ca.pem: is there already"),
        ("issue", 2, "whom is it for?"),
        ("issue --client bank --operator ann", 2, "too many options"),
        ("issue --client Shop", 2, "names nobody"),
        ("issue --client coordinator", 2, 'cannot be called "coordinator"'),
        ("issue --all shop,,telco", 2, "names nobody"),
        ("issue --all shop,bank", 5, "certs/bank.pem: is there already"),
        ("issue --client bank", 5, "`laser-vfl certs renew --dir certs bank` replaces it"),
        ("issue --client ca", 5, "certs/ca.pem: is there already"),
        ("issue --application crm", 2, "give --application and --of together"),
        ("issue --client shop --of bank", 2, "give --application and --of together"),
        ("issue --client shop --out shop.pem", 2, "--out is for a request"),
        ("issue --client shop --dir nowhere", 5, "nowhere/ca.pem: cannot be read"),
        ("issue --csr nowhere.csr", 5, "nowhere.csr: cannot be read"),
        ("issue --csr certs/bank.pem", 5, "certs/bank.pem: holds no request"),
        ("request --federation churn --out new", 2, "whom is it for?"),
        ("request --federation churn --client bank --out certs", 5, "bank.key: is there already"),
        ("request --federation churn --client shop --out certs/ca.pem", 2, "cannot be written"),
        ("renew", 2, "what is to be renewed?"),
        ("renew shop", 5, "certs/shop.pem: cannot be read"),
        ("renew ca", 5, "certs/ca.pem: is not the certificate of a party by that name"),
        ("renew bank --within soon", 2, '--within: "soon" is no number of days'),
        ("show", 2, "no certificate to show"),
        ("show --dir nowhere", 5, "nowhere: is no directory"),
        ("show nowhere.pem", 5, "nowhere.pem: cannot be read"),
        ("show certs/bank.key", 5, "certs/bank.key: holds no certificate that can be read"),
    ],
)
def test_mistakes(line, code, says, certs, tmp_path):
    made(certs, "init --federation churn")
    made(certs, "issue --client bank")
    before = {path: path.read_bytes() for path in (tmp_path / "certs").iterdir()}
    refused(certs, line, code, says)
    assert {path: path.read_bytes() for path in (tmp_path / "certs").iterdir()} == before


@pytest.mark.parametrize("days", ["0", "398", "ten"])
def test_days_out_of_range_are_a_usage_error(days, certs):
    made(certs, "init --federation churn")
    code, _, err = certs(f"issue --client bank --days {days}")
    assert code == 2
    assert "--days" in err


def test_an_organisation_of_its_own(certs):
    made(certs, "init --federation churn --organisation bank")
    assert list(made(certs, "issue --client bank")) == ["certs/bank.pem"]
    refused(certs, "issue --client shop", 5, "may not vouch for spiffe://churn/client/shop")
    refused(certs, "issue --operator ann", 5, "ask the authority of coordinator")
    made(certs, "init --federation churn --organisation coordinator --dir ours")
    assert list(made(certs, "issue --operator ann --dir ours")) == ["ours/operator-ann.pem"]


def test_a_request_goes_to_the_authority_and_comes_back(certs, tmp_path):
    made(certs, "init --federation churn --dir ca")
    code, out, _ = certs("request --federation churn --client bank --out bank --format json")
    asked = json.loads(out)
    assert (code, asked["file"]) == (0, "bank/bank.csr")
    refused(certs, "issue --dir ca --csr bank/bank.csr --client shop", 5, "names spiffe://churn/")
    code, out, err = certs("issue --dir ca --csr bank/bank.csr --client bank --out bank/bank.pem")
    assert code == 0
    assert out.startswith("bank/bank.pem: spiffe://churn/client/bank, until ")
    assert asked["identity"] in err
    assert asked["key"] in err
    assert read_certificate(tmp_path / "bank/bank.pem").key_matches(tmp_path / "bank/bank.key")
    again = made(certs, "issue --dir ca --csr bank/bank.csr --client bank")
    assert list(again) == ["ca/bank.pem"]


def test_a_request_of_another_federation_is_not_signed(certs, tmp_path, monkeypatch):
    made(certs, "init --federation churn")
    assert certs("request --federation loans --client bank --out new")[0] == 0
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    code, out, err = certs("issue --csr new/bank.csr")
    assert (code, out.strip()) == (5, "")
    assert 'vouches for nobody in "loans"' in err
    assert not (tmp_path / "certs/bank.pem").exists()


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self):
        return True


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_person_is_asked_before_signing(answer, code, certs, tmp_path, monkeypatch):
    made(certs, "init --federation churn")
    assert certs("request --federation churn --client bank --out new")[0] == 0
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    assert certs("issue --csr new/bank.csr")[0] == code
    assert (tmp_path / "certs/bank.pem").exists() == (code == 0)


def test_without_a_person_or_a_name_nothing_is_signed(certs, tmp_path, monkeypatch):
    made(certs, "init --federation churn")
    assert certs("request --federation churn --client bank --out new")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    refused(certs, "issue --csr new/bank.csr", 2, "say beside --csr whom it has to name")
    assert not (tmp_path / "certs/bank.pem").exists()
    assert list(made(certs, "issue --csr new/bank.csr --client bank")) == ["certs/bank.pem"]


def test_renewing_by_name(certs, tmp_path):
    made(certs, "init --federation churn")
    old = made(certs, "issue --all bank,shop")
    new = made(certs, "renew bank bank --days 60")
    assert list(new) == ["certs/bank.pem"]
    assert new["certs/bank.pem"]["identity"] == old["certs/bank.pem"]["identity"]
    assert new["certs/bank.pem"]["days_left"] == 59
    assert new["certs/bank.pem"]["serial"] != old["certs/bank.pem"]["serial"]
    assert read_certificate(tmp_path / "certs/bank.pem").key_matches(tmp_path / "certs/bank.key")
    assert made(certs, "show certs/shop.pem") == {"certs/shop.pem": old["certs/shop.pem"]}


def test_renewing_what_ends_soon(certs):
    made(certs, "init --federation churn --dir long")
    made(certs, "issue --dir long --all bank --days 20")
    made(certs, "issue --dir long --application crm --of bank --days 8")
    assert made(certs, "renew --dir long --within 5d") == {}
    assert list(made(certs, "renew --dir long --within 10d")) == ["long/bank-crm.pem"]
    assert made(certs, "renew --dir long --within 10d bank") == {}
    assert list(made(certs, "renew --dir long --within 25 bank")) == ["long/bank.pem"]


def test_what_has_its_key_elsewhere_is_said_and_the_others_are_renewed(certs):
    made(certs, "init --federation churn")
    made(certs, "issue --client shop")
    assert certs("request --federation churn --client bank --out new")[0] == 0
    made(certs, "issue --csr new/bank.csr --client bank")
    code, out, err = certs("renew --within 40d")
    assert code == 5
    assert out.startswith("certs/shop.pem: ")
    assert "certs/bank.pem: cannot be renewed here" in err


def test_a_copy_under_another_name_is_not_renewed(certs, tmp_path):
    made(certs, "init --federation churn")
    made(certs, "issue --client bank")
    for end in ("pem", "key"):
        (tmp_path / f"certs/old.{end}").write_bytes((tmp_path / f"certs/bank.{end}").read_bytes())
    refused(certs, "renew old", 5, "certs/old.pem: is not the certificate of a party")
    assert list(made(certs, "renew --within 40d")) == ["certs/bank.pem"]


def test_an_expired_one_is_shown_and_ends_with_5(certs, tmp_path):
    past = datetime.now(UTC) - timedelta(days=40)
    authority = init_authority(tmp_path / "certs", "churn", now=past)
    issue(authority, tmp_path / "certs", [client_of("churn", "bank")], now=past)
    made(certs, "issue --client shop")
    code, out, err = certs("show --dir certs")
    assert code == 5
    assert err.startswith("certs/bank.pem: has expired; ")
    assert [line.count("expired") for line in out.splitlines() if "client" in line] == [1, 0]
    code, out, _ = certs("show certs/bank.pem --format json")
    assert code == 5
    assert json.loads(out)["certificates"][0]["is_expired"]
    assert json.loads(out)["certificates"][0]["days_left"] < 0
    assert certs("renew --within 1d")[0] == 0
    assert certs("show --dir certs")[0] == 0


def test_an_expired_authority_signs_nothing(certs, tmp_path):
    past = datetime.now(UTC) - timedelta(days=2)
    init_authority(tmp_path / "certs", "churn", days=1, now=past)
    assert load_authority(tmp_path / "certs").federation == "churn"
    refused(certs, "issue --client bank", 5, "the authority has expired on ")


def test_the_table_has_the_authority_first_and_unbroken_lines(certs):
    made(certs, "init --federation churn")
    made(certs, "issue --application a-rather-long-name-of-an-application --of bank")
    code, out, err = certs("show --dir certs")
    assert (code, err) == (0, "")
    header, *rows = [line for line in out.splitlines() if line[0] in "┃│"]
    columns = ["identity", "kind", "from", "until", "days left", "issuer", "fingerprint"]
    assert [cell.strip() for cell in header.strip("┃").split("┃")] == columns
    cells = [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]
    assert [row[1] for row in cells] == ["authority", "application"]
    assert cells[1][0].endswith("/bank/application/a-rather-long-name-of-an-application")
