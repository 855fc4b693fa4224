"""`make audit`: known holes in what is installed, and secrets in what is committed."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
BASELINE = ".secrets.baseline"
"""What looks like a secret and is none; `detect-secrets audit` shows each."""


def main() -> int:
    """Run both; the exit code is 1 if either has found something."""
    return max(audit_packages(), scan_for_secrets())


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
    names = [name for name in files.stdout.decode().split("\0") if name and name != BASELINE]
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
