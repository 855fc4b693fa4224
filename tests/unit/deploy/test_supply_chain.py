"""What the image installs is locked, what is in it is listed, and an audit notices a difference."""

import base64
import copy
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import pytest
from supply_chain import ROOT, audit, lock, locked, sbom, supply_audit

SITE = "lib/python3.11/site-packages"
REGISTRIES = (
    ("py", "pi", "org"),
    ("python", "hosted", "org"),
    ("py", "torch", "org"),
    ("anaconda", "", "org"),
    ("npm", "js", "org"),
    ("npm", "js", "com"),
    ("docker", "", "io"),
    ("docker", "hub", "com"),
    ("gh", "cr", "io"),
    ("gc", "r", "io"),
    ("quay", "", "io"),
)
"""Hosts, in pieces: this file is committed, too."""


def test_no_committed_file_has_the_name_of_a_registry() -> None:
    """Whoever builds says where from: what is pinned are names, releases and hashes."""
    hosts = "|".join(re.escape(f"{first}{second}.{top}") for first, second, top in REGISTRIES)
    pattern = re.compile(rf"(?<![\w.-])(?:[\w-]+\.)*(?:{hosts})(?![\w-])", re.IGNORECASE)
    named = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, named.stdout.decode().split("\0")):
        path = ROOT / name
        if path.is_file():
            found = pattern.search(path.read_bytes().decode(errors="replace"))
            assert found is None, f"{name}: {found and found[0]}"


def test_the_pattern_finds_a_host() -> None:
    first, second, top = REGISTRIES[1]
    assert re.search(rf"{first}{second}\.{top}", f"https://files.{first}{second}.{top}/x")


def test_the_lock_files_fit_the_requirements() -> None:
    assert supply_audit.lock_problems() == []


def test_every_release_has_hashes_and_a_group() -> None:
    for name in supply_audit.FILES:
        for one in locked.read_lock(lock.LOCK / name):
            assert one.hashes
            assert one.groups
            assert locked.LINE.fullmatch(one.line)


@pytest.mark.parametrize(
    "line",
    [
        "numpy==2.0",
        "numpy>=2 --hash=sha256:" + "0" * 64 + "  # dependencies",
        "numpy==2.0 --hash=sha256:" + "0" * 63 + "  # dependencies",
        "numpy==2.0 --hash=sha256:" + "0" * 64,
        "-r other.txt",
        "--index-url x",
    ],
)
def test_a_line_without_hashes_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "lock.txt"
    path.write_text(f"# head\n{line}\n")
    with pytest.raises(ValueError, match=r"lock\.txt:2: this is no release"):
        locked.read_lock(path)


def test_a_changed_requirement_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    project = copy.deepcopy(lock.read_project())
    project["dependencies"] += ["numpy>=9", "no-such-package"]
    monkeypatch.setattr(lock, "read_project", lambda: project)
    problems = supply_audit.lock_problems()
    assert any("was not written for these requirements" in one for one in problems)
    assert any("need numpy>=9" in one for one in problems)
    assert any("need no-such-package, and nothing is locked" in one for one in problems)


def test_hashes_of_the_same_release_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LOCK", tmp_path)
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    monkeypatch.setattr(lock, "inputs", lambda: "x")
    for release, digest in (("1.0", "a" * 64), ("1.0", "b" * 64), ("2.0", "c" * 64)):
        entry = locked.Locked("torch", release, frozenset([digest]), frozenset(["cpu"]))
        lock.write("torch.txt", [entry])
        (found,) = locked.read_lock(tmp_path / "torch.txt")
        last = found.hashes
        if digest[0] == "b":
            assert last == {"a" * 64, "b" * 64}
    assert last == {"c" * 64}


def test_an_image_takes_only_what_its_groups_need() -> None:
    entries = locked.read_lock(lock.LOCK / "dependencies.txt")
    base = {one.name for one in locked.needed_by(entries, ["dependencies"])}
    demo = {one.name for one in locked.needed_by(entries, ["dependencies", "demo"])}
    assert {"numpy", "grpcio", "polars"} <= base
    assert demo - base >= {"scikit-learn", "scipy"}


@pytest.mark.parametrize(
    ("base", "is_pinned"),
    [
        ("python:3.11-slim@sha256:" + "0" * 64, True),
        ("python:3.11-slim", False),
        ("python:3.11-slim@sha256:0", False),
        ("python@latest", False),
    ],
)
def test_a_base_image_is_pinned_by_a_digest_alone(base: str, is_pinned: bool) -> None:
    assert (supply_audit.base_problem(base) == "") is is_pinned


@pytest.mark.parametrize(("digest", "expected"), [("", 1), ("@sha256:" + "0" * 64, 0)])
def test_the_audit_fails_without_a_digest_unless_told_otherwise(
    digest: str,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit, "lock_problems", list)
    monkeypatch.setattr(lock, "base_image", lambda: "python:3.11-slim" + digest)
    assert audit.audit_lock(may_float=False) == expected
    assert ("imagetools inspect" in capsys.readouterr().out) is bool(expected)
    assert audit.audit_lock(may_float=True) == 0


# -- an image


def record_line(name: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(content)}\n"


def install(site: Path, name: str, version: str, *headers: str) -> None:
    """Install a package of one file."""
    directory = site / f"{name.replace('-', '_')}-{version}.dist-info"
    directory.mkdir(parents=True)
    content = f"version = '{version}'\n".encode()
    (site / f"{name.replace('-', '_')}.py").write_bytes(content)
    metadata = "\n".join([f"Name: {name}", f"Version: {version}", *headers]) + "\n"
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\n{metadata}")
    record = record_line(f"{name.replace('-', '_')}.py", content)
    record += f"{directory.name}/RECORD,,\n{directory.name}/METADATA,,\n"
    (directory / "RECORD").write_bytes(record.replace("\n", "\r\n").encode())  # as pip does


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with everything that is locked, each as a package of one file."""
    root = tmp_path / "laser-vfl"
    site = root / SITE
    entries = locked.read_lock(lock.LOCK / "dependencies.txt")
    entries = locked.needed_by(entries, ["dependencies"])
    for one in [*entries, *locked.read_lock(lock.LOCK / "torch-cpu.txt")]:
        if one.name not in supply_audit.NOT_INSTALLED:
            install(site, one.name, one.version, "License-Expression: MIT")
    install(site, "laser-vfl", "0.1.0", "Requires-Dist: numpy>=2", "License: Apache-2.0")
    return root


def audited(root: Path, *, told: dict | None = None) -> list[str]:
    """Return what an audit finds in an environment with the SBOM that was written for it."""
    base = "python:3.11-slim"
    content = sbom.document(root / SITE, base, "x", [("tini", "0.19", "amd64")])
    (root / "sbom.cdx.json").write_text(json.dumps(told or content))
    return audited_as_it_is(root)


def audited_as_it_is(root: Path) -> list[str]:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as files:
        files.add(root, "laser-vfl")
    packed.seek(0)
    with tarfile.open(fileobj=packed, mode="r|") as files:
        return supply_audit.image_problems(supply_audit.read_contents(files))


def test_an_image_as_it_was_locked_has_no_problem(environment: Path) -> None:
    assert audited(environment) == []


def test_what_is_changed_added_or_gone_after_the_build_is_found(environment: Path) -> None:
    assert audited(environment) == []
    site = environment / SITE
    (site / "numpy.py").write_text("changed")
    (site / "planted.pth").write_text("import os")
    assert audited_as_it_is(environment) == [
        f"image: {SITE}/numpy.py is not the file that was installed",
        f"image: {SITE}/planted.pth belongs to nothing that was installed",
    ]


def test_a_distribution_that_is_not_locked_or_not_told_is_found(environment: Path) -> None:
    assert audited(environment) == []
    install(environment / SITE, "intruder", "6.6.6")
    assert audited_as_it_is(environment) == [
        "image: intruder 6.6.6 is not locked",
        "image: pkg:pypi/intruder@6.6.6 is not in its SBOM",
    ]


def test_a_dependency_that_is_missing_or_of_another_release_is_found(environment: Path) -> None:
    site = environment / SITE
    (directory,) = site.glob("numpy-*.dist-info")
    for path in [*directory.iterdir()]:
        path.unlink()
    directory.rmdir()
    (site / "numpy.py").unlink()
    assert audited(environment) == [
        "image: numpy is missing",
        "image: laser-vfl needs numpy, which is not there",
    ]
    install(site, "numpy", "1.0")
    assert audited(environment) == [
        "image: numpy 1.0 is not locked",
        "image: laser-vfl needs numpy>=2, and 1.0 is there",
    ]


def test_an_image_without_an_sbom_is_found(environment: Path) -> None:
    assert audited_as_it_is(environment) == ["image: there is no sbom.cdx.json"]


def test_the_sbom_names_what_is_there(environment: Path) -> None:
    pinned = "python:3.11-slim@sha256:" + "ab" * 32
    written = sbom.document(environment / SITE, pinned, "rev", [("tini", "0.19.0-1", "amd64")])
    assert (written["bomFormat"], written["specVersion"]) == ("CycloneDX", "1.5")
    by_name = {one["name"]: one for one in written["components"]}
    assert by_name["python"]["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert by_name["tini"]["purl"] == "pkg:deb/debian/tini@0.19.0-1?arch=amd64"
    assert by_name["numpy"]["licenses"] == [{"expression": "MIT"}]
    assert by_name["laser-vfl"]["licenses"] == [{"license": {"name": "Apache-2.0"}}]
    references = [one["bom-ref"] for one in written["components"]]
    assert len(set(references)) == len(references)
    assert written == sbom.document(
        environment / SITE, pinned, "rev", [("tini", "0.19.0-1", "amd64")]
    )
    contents = supply_audit.Contents(sbom=written)
    assert supply_audit.base_problem(supply_audit.sbom_base(contents)) == ""
