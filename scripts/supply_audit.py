"""What an image may install, and what is in one: the lock files against what they were made for.

The files of an image are read from outside, by the engine; nothing in it runs.
"""

import csv
import hashlib
import io
import json
import posixpath
import subprocess
import sys
import tarfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from email import message_from_string
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "deploy"), str(ROOT / "scripts")]

import lock  # noqa: E402
from locked import EVERYWHERE, Locked, needed_by, normalised, read_lock  # noqa: E402
from sbom import RECORD, reference_of  # noqa: E402

FILES = ("build.txt", "dependencies.txt", "torch-cpu.txt", "torch-cuda.txt")
ENVIRONMENT = "laser-vfl"
SBOM = "sbom.cdx.json"
PACKAGE = "laser-vfl"
DEPTH = 3
"""lib/python3.11/site-packages/NAME.dist-info: packages bring others of their own further down."""
NOT_INSTALLED = frozenset(("setuptools",))
"""What torch names as needed, for building; nothing loads it."""


def lock_problems() -> list[str]:
    """Return what is wrong with the lock files."""
    try:
        files = {name: read_lock(lock.LOCK / name) for name in FILES}
    except (OSError, ValueError) as error:
        return [str(error)]
    found = []
    for name in FILES:
        if f"# inputs: {lock.inputs()}\n" not in (lock.LOCK / name).read_text():
            found.append(f"{name} was not written for these requirements: run `make lock`")
        versions = [normalised(one.name) for one in files[name]]
        found += [f"{name} has {one} twice" for one in set(versions) if versions.count(one) > 1]
    dependencies = files["dependencies.txt"]
    for torch in ("torch-cpu.txt", "torch-cuda.txt"):
        found += unmet([*dependencies, *files[torch]], torch)
        found += misfits([*dependencies, *files[torch]], torch)
    return found


def unmet(entries: Iterable[Locked], name: str) -> Iterator[str]:
    """Yield the requirements of the package that no locked release meets."""
    entries, project = list(entries), lock.read_project()
    groups = {EVERYWHERE: project["dependencies"]}
    groups |= {extra: lock.extra_requirements(project, extra) for extra in lock.EXTRAS}
    for group, wanted in groups.items():
        known = {normalised(one.name): one.version for one in entries if is_for(one, group)}
        for one in map(Requirement, wanted):
            version = known.get(normalised(one.name))
            if version is None or not one.specifier.contains(version, prereleases=True):
                yield f"with {name}, {group} need {one}, and {version or 'nothing'} is locked"


def is_for(one: Locked, group: str) -> bool:
    """Tell whether a group installs a release; torch comes first, for all of them."""
    return bool(one.groups & {group, EVERYWHERE, "cpu", "cuda"})


def misfits(entries: Iterable[Locked], name: str) -> Iterator[str]:
    """Yield the releases that are not those of constraints.txt."""
    pins = (ROOT / "constraints.txt").read_text().split()
    versions = {normalised(one.name): one.version.partition("+")[0] for one in entries}
    for pin in pins:
        package, _, version = pin.partition("==")
        if versions.get(normalised(package), version) != version:
            yield f"with {name}, {package} {versions[package]} is locked, constraints.txt has {pin}"


def base_problem(base: str) -> str:
    """Return what is wrong with how the base image is named; empty if it has a digest."""
    digest = base.partition("@")[2]
    if lock.DIGEST.fullmatch(digest):
        return ""
    return f"base image: {base} is NOT pinned by a digest"


@dataclass
class Contents:
    """An image's environment, as its files tell."""

    digests: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file, by its path below the environment."""
    records: dict[str, str] = field(default_factory=dict)
    """RECORD of each distribution, by its directory."""
    metadata: dict[str, str] = field(default_factory=dict)
    sbom: dict[str, Any] | None = None


def read_image(image: str) -> Contents:
    """Return what is in an image, read from a container that never runs."""
    created = subprocess.run(
        ["docker", "create", "--network", "none", image], capture_output=True, text=True, check=True
    )
    container = created.stdout.strip()
    try:
        copy = subprocess.Popen(
            ["docker", "cp", f"{container}:/opt/{ENVIRONMENT}", "-"], stdout=subprocess.PIPE
        )
        assert copy.stdout is not None
        with copy, tarfile.open(fileobj=copy.stdout, mode="r|") as files:
            return read_contents(files)
    finally:
        subprocess.run(["docker", "rm", container], capture_output=True, check=True)


def read_contents(files: tarfile.TarFile) -> Contents:
    """Return what is in the environment that a tar file holds."""
    found = Contents()
    for member in files:
        stream = files.extractfile(member) if member.isfile() else None
        if stream is None:
            continue
        name = member.name.removeprefix(f"{ENVIRONMENT}/")
        directory, _, last = name.rpartition("/")
        is_installed = directory.endswith(".dist-info") and directory.count("/") == DEPTH
        if is_installed and last in ("RECORD", "METADATA"):
            text = stream.read()
            found.digests[name] = hashlib.sha256(text).hexdigest()
            kept = found.records if last == "RECORD" else found.metadata
            kept[directory] = text.decode().replace("\r\n", "\n")  # as Python reads them
        elif name == SBOM:
            found.sbom = json.load(stream)
        else:
            found.digests[name] = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
    return found


def image_problems(contents: Contents) -> list[str]:
    """Return how the contents of an image differ from what was locked and from what it says."""
    distributions = {
        directory: message_from_string(text) for directory, text in contents.metadata.items()
    }
    versions = {normalised(one["Name"]): one["Version"] for one in distributions.values()}
    return [
        *_not_as_locked(versions),
        *_changed_files(contents),
        *_missing(distributions.values(), versions),
        *_not_in_sbom(contents, distributions),
    ]


def _not_as_locked(versions: Mapping[str, str]) -> Iterator[str]:
    locked: dict[str, set[str]] = {}
    for name in ("dependencies.txt", "torch-cpu.txt", "torch-cuda.txt"):
        for one in read_lock(lock.LOCK / name):
            locked.setdefault(normalised(one.name), set()).add(one.version)
    for name, version in sorted(versions.items()):
        if name != PACKAGE and version not in locked.get(name, ()):
            yield f"image: {name} {version} is not locked"
    base = needed_by(read_lock(lock.LOCK / "dependencies.txt"), [EVERYWHERE])
    for name in {normalised(one.name) for one in base} | {"torch", PACKAGE}:
        if name not in versions and name not in NOT_INSTALLED:
            yield f"image: {name} is missing"


def _changed_files(contents: Contents) -> Iterator[str]:
    """Yield files that are not what their distribution's RECORD says, or that none has."""
    known = set()
    for directory, record in contents.records.items():
        site = posixpath.dirname(directory)
        for name, digest, _ in csv.reader(io.StringIO(record)):
            path = posixpath.normpath(posixpath.join(site, name))
            known.add(path)
            found = contents.digests.get(path)
            if digest and found is not None and _encoded(found) != digest:
                yield f"image: {path} is not the file that was installed"
    for path in sorted(contents.digests):
        is_package = "/site-packages/" in path and "/__pycache__/" not in path
        if is_package and path not in known:
            yield f"image: {path} belongs to nothing that was installed"


def _encoded(hexadecimal: str) -> str:
    """Return a SHA-256 as RECORD has it."""
    return "sha256=" + urlsafe_b64encode(bytes.fromhex(hexadecimal)).decode().rstrip("=")


def _missing(distributions: Iterable[Any], versions: Mapping[str, str]) -> Iterator[str]:
    for one in distributions:
        for text in one.get_all("Requires-Dist", []):
            wanted = Requirement(text)
            name = normalised(wanted.name)
            if wanted.marker and not wanted.marker.evaluate(lock.TARGET | {"extra": ""}):
                continue
            version = versions.get(name)
            if version is None and name not in NOT_INSTALLED:
                yield f"image: {one['Name']} needs {name}, which is not there"
            elif version and not wanted.specifier.contains(version, prereleases=True):
                yield f"image: {one['Name']} needs {wanted}, and {version} is there"


def _not_in_sbom(contents: Contents, distributions: Mapping[str, Any]) -> Iterator[str]:
    if contents.sbom is None:
        yield f"image: there is no {SBOM}"
        return
    told = {
        one["purl"]: {p["name"]: p["value"] for p in one.get("properties", [])}
        for one in contents.sbom.get("components", [])
        if one.get("purl", "").startswith("pkg:pypi/")
    }
    found = {
        reference_of(one["Name"], one["Version"]): hashlib.sha256(
            contents.records.get(directory, "").encode()
        ).hexdigest()
        for directory, one in distributions.items()
    }
    for purl in sorted(found.keys() - told.keys()):
        yield f"image: {purl} is not in its SBOM"
    for purl in sorted(told.keys() - found.keys()):
        yield f"image: {purl} is in its SBOM and not there"
    for purl in sorted(found.keys() & told.keys()):
        if told[purl].get(RECORD) != found[purl]:
            yield f"image: {purl} is not as its SBOM says"


def sbom_base(contents: Contents) -> str:
    """Return the base image, as the SBOM has it."""
    components = contents.sbom["components"] if contents.sbom else []
    for one in components:
        if one.get("bom-ref") == "base":
            digest = next((f"@sha256:{h['content']}" for h in one.get("hashes", [])), "")
            return f"{one['name']}:{one['version']}{digest}"
    return "of no name"
