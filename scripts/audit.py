"""`make audit`: known holes in what is installed, secrets in what is committed, and the lock files.

With IMAGE, also what is in that image: against the lock files, and against its own SBOM.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import lock
from supply_audit import (
    base_problem,
    image_problems,
    lock_problems,
    read_image,
    sbom_base,
)

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
BASELINE = ".secrets.baseline"
"""What looks like a secret and is none; `detect-secrets audit` shows each."""
HASHES = "deploy/lock/"
"""Nothing but hashes, whose form `audit_lock` checks."""
PIN = (
    "`make lock` writes the digest into deploy/lock/base.txt where the registry can be asked. "
    "By hand: `docker buildx imagetools inspect NAME`, then BASE=NAME@sha256:... for `make image`. "
    "`make audit UNPINNED=1` lets it pass"
)


def main() -> int:
    """Run all; the exit code is 1 if one has found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", default="", help="an image that docker has")
    parser.add_argument("--only-image", action="store_true", help="look at nothing else")
    parser.add_argument(
        "--allow-unpinned-base",
        action="store_true",
        help="only say so when the base image has no digest, where its registry cannot be asked",
    )
    options = parser.parse_args()
    may_float = options.allow_unpinned_base
    found = audit_image(options.image, may_float=may_float) if options.image else 0
    if options.only_image:
        return found
    return max(found, audit_lock(may_float=may_float), audit_packages(), scan_for_secrets())


def audit_lock(*, may_float: bool) -> int:
    """See that the lock files fit the requirements, and that the base image has a digest."""
    problems = lock_problems()
    for problem in problems:
        print(f"lock: {problem}")
    if not problems:
        print("lock: fits pyproject.toml and constraints.txt, and has a hash for every file")
    if problem := base_problem(lock.base_image()):
        print(f"{problem}; {PIN}")
        if not may_float:
            problems.append(problem)
    return 1 if problems else 0


def audit_image(image: str, *, may_float: bool) -> int:
    """See that an image has what was locked, and what its SBOM says."""
    try:
        contents = read_image(image)
    except (OSError, subprocess.CalledProcessError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        print(f"image: NOT looked at, docker has not got it ({why})")
        return 1
    problems = image_problems(contents)
    if problem := base_problem(sbom_base(contents)):
        if may_float:
            print(f"{problem}; {PIN}")
        else:
            problems.append(f"{problem}; {PIN}")
    for problem in problems:
        print(problem)
    print(
        f"image: {len(contents.records)} distributions and {len(contents.digests)} files looked at"
    )
    return 1 if problems else 0


def audit_packages() -> int:
    """Ask pip-audit; where its database cannot be reached, say so."""
    result = _run(
        ["pip-audit", "--local", "--skip-editable", "--progress-spinner=off", "--format=json"]
    )
    try:
        found = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (result.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"packages: NOT checked, the database cannot be reached from here ({last})")
        return 0
    checked = [one for one in found if "skip_reason" not in one]
    unchecked = [one["name"] for one in found if "skip_reason" in one]
    holes = [(one["name"], one["version"], hole) for one in checked for hole in one["vulns"]]
    for name, version, hole in holes:
        fixed = ", ".join(hole["fix_versions"]) or "no release"
        print(f"packages: {name} {version} has {hole['id']}, fixed in {fixed}")
    print(f"packages: {len(checked)} checked, {len(holes)} known holes")
    if not checked:
        print("packages: NOT checked, the database cannot be reached from here")
    elif unchecked:
        print(f"packages: not in the database: {', '.join(unchecked)}")
    return 1 if holes else 0


def scan_for_secrets() -> int:
    """Look through all committed files."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = [
        name
        for name in files.stdout.decode().split("\0")
        if name and name != BASELINE and not name.startswith(HASHES)
    ]
    result = _run(["detect-secrets-hook", "--baseline", BASELINE, *names])
    if result.returncode:
        print(result.stdout.strip() or result.stderr.strip())
    else:
        print(f"secrets: none in {len(names)} files")
    return 1 if result.returncode else 0


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


if __name__ == "__main__":
    sys.exit(main())
