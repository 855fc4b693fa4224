"""`make lock`: write deploy/lock anew, by what pip resolves here for the image's platform.

The hash of a file that was locked before stays beside a new one of the same release: a mirror may
have wheels that were built anew, and whoever builds may have either.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "deploy"))

from locked import EVERYWHERE, Locked, normalised, read_lock  # noqa: E402

LOCK = ROOT / "deploy" / "lock"
BASE = LOCK / "base.txt"
EXTRAS = ("demo", "experiments", "plot", "privacy")
"""Those that an image can have; the others are for developing."""
LEFT_OUT = ("torch", "setuptools")
"""What dependencies.txt leaves out: torch has files of its own, and setuptools is what it is built
with."""
PLATFORM = [f"manylinux_2_{minor}_x86_64" for minor in range(36, 4, -1)]
PLATFORM += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
PYTHON = "3.11"
TARGET = {
    "python_version": PYTHON,
    "python_full_version": f"{PYTHON}.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
"""What markers in requirements are about."""
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

HEAD = """\
# Written by `make lock` for CPython {python} on Linux, x86-64. Each line: a release, the SHA-256 of
# each file of it that may be installed, and who needs it.
# inputs: {inputs}
"""

Report = list[dict[str, Any]]


def main() -> None:
    """Write all lock files, and the digest of the base image if its registry can be asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-index", default="", help="where pip finds torch for the CPU")
    options = parser.parse_args()
    project = read_project()
    release = pinned_torch()
    cpu = f"torch=={release}+cpu"
    index = ["--extra-index-url", options.torch_index] if options.torch_index else []
    groups = {EVERYWHERE: project["dependencies"]}
    groups |= {name: extra_requirements(project, name) for name in EXTRAS}
    everything = sorted({one for wanted in groups.values() for one in wanted})
    report = resolve([*everything, cpu], index)
    found = {name: closure([*groups[EVERYWHERE], *one], report) for name, one in groups.items()}
    write("dependencies.txt", merged(found, without=LEFT_OUT))
    in_base = {normalised(one["metadata"]["name"]) for one in found[EVERYWHERE]} - {"torch"}
    write("torch-cpu.txt", merged({"cpu": [one for one in found[EVERYWHERE] if is_torch(one)]}))
    # `===` does not take a build for the CPU that lies at hand for the ordinary one.
    write("torch-cuda.txt", merged({"cuda": resolve([f"torch==={release}"])}, without=in_base))
    write("build.txt", merged({"build": resolve(project_build_requirements())}))
    lock_base()


def read_project() -> dict[str, Any]:
    """Return what pyproject.toml says of the package."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def project_build_requirements() -> list[str]:
    """Return what the package is built with."""
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"][
        "requires"
    ]
    return found


def extra_requirements(project: dict[str, Any], name: str) -> list[str]:
    """Return what an extra needs; one may name others of the package."""
    found: list[str] = []
    for one in project["optional-dependencies"][name]:
        nested = re.fullmatch(rf"{project['name']}\[(.*)\]", one)
        names = nested[1].split(",") if nested else []
        found += [r for n in names for r in extra_requirements(project, n)] if nested else [one]
    return found


def pinned_torch() -> str:
    """Return the release of torch that constraints.txt names."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch==")).removeprefix("torch==")


def inputs() -> str:
    """Return what changes when the lock has to be written anew."""
    project = read_project()
    content = [
        project["dependencies"],
        {name: extra_requirements(project, name) for name in EXTRAS},
        project_build_requirements(),
        (ROOT / "constraints.txt").read_text(),
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def closure(wanted: Sequence[str], report: Report) -> Report:
    """Return those releases of a resolution that some requirements need, directly or not."""
    by_name = {normalised(one["metadata"]["name"]): one for one in report}
    found: dict[str, dict[str, Any]] = {}
    waiting = [(Requirement(text), "") for text in wanted]
    while waiting:
        one, extra = waiting.pop()
        if one.marker and not one.marker.evaluate(TARGET | {"extra": extra}):
            continue
        name = normalised(one.name)
        if name in found and not one.extras:
            continue
        found[name] = by_name[name]
        needs = [Requirement(text) for text in found[name]["metadata"].get("requires_dist", [])]
        waiting += [(need, each) for need in needs for each in ("", *one.extras)]
    return list(found.values())


def resolve(wanted: Sequence[str], more: Sequence[str] = ()) -> Report:
    """Return what pip would install for these, for the image's platform."""
    print(f"resolving {len(wanted)} requirements", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--quiet", "--disable-pip-version-check", "--report", str(directory / "report")]
        command += ["--target", str(directory / "target"), "--only-binary=:all:"]
        command += ["--python-version", PYTHON, "--implementation", "cp"]
        command += [word for platform in PLATFORM for word in ("--platform", platform)]
        command += ["-c", str(ROOT / "constraints.txt")]
        subprocess.run([*command, *more, *wanted], check=True)
        found: Report = json.loads((directory / "report").read_text())["install"]
    return found


def is_torch(one: dict[str, Any]) -> bool:
    """Tell whether this is torch itself."""
    return normalised(one["metadata"]["name"]) == "torch"


def merged(reports: dict[str, Report], without: Iterable[str] = ()) -> list[Locked]:
    """Return each release once, with the groups that need it."""
    left_out = set(without)
    groups: dict[tuple[str, str], set[str]] = {}
    hashes: dict[tuple[str, str], set[str]] = {}
    for group, report in reports.items():
        for one in report:
            key = normalised(one["metadata"]["name"]), one["metadata"]["version"]
            if key[0] in left_out:
                continue
            groups.setdefault(key, set()).add(group)
            hashes.setdefault(key, set()).add(
                one["download_info"]["archive_info"]["hashes"]["sha256"]
            )
    return [Locked(*key, frozenset(hashes[key]), frozenset(groups[key])) for key in sorted(groups)]


def write(name: str, entries: Iterable[Locked]) -> None:
    """Write a lock file; hashes that it had for the same releases stay."""
    path = LOCK / name
    before = (
        {(one.name, one.version): one.hashes for one in read_lock(path)} if path.exists() else {}
    )
    lines = [HEAD.format(python=PYTHON, inputs=inputs())]
    for one in entries:
        known = before.get((one.name, one.version), frozenset())
        lines.append(Locked(one.name, one.version, one.hashes | known, one.groups).line + "\n")
    path.write_text("".join(lines))
    print(f"{path.relative_to(ROOT)}: {len(lines) - 1} releases", file=sys.stderr)


def base_image() -> str:
    """Return the base image as it is locked: with its digest, if that is known."""
    lines = BASE.read_text().splitlines()
    return next(line for line in lines if line and not line.startswith("#"))


def lock_base() -> None:
    """Write the digest of the base image as its registry has it now; a stand-in has none."""
    name = base_image().partition("@")[0]
    command = [
        "docker",
        "buildx",
        "imagetools",
        "inspect",
        "--format",
        "{{.Manifest.Digest}}",
        name,
    ]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        told = None
    digest = told.stdout.strip() if told is not None and told.returncode == 0 else ""
    if not DIGEST.fullmatch(digest):
        print(f"{name}: its registry cannot be asked from here, base.txt stays", file=sys.stderr)
        return
    head = [line for line in BASE.read_text().splitlines() if line.startswith("#")]
    BASE.write_text("\n".join([*head, f"{name}@{digest}"]) + "\n")
    print(f"{name} is {digest}", file=sys.stderr)


if __name__ == "__main__":
    main()
