"""Render deploy/kubernetes with kubectl's kustomize, for tests on machines that have none."""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "deploy" / "kubernetes"
RENDERED = ROOT / "tests" / "unit" / "deploy" / "rendered"
OVERLAYS = ("client", "coordinator")


def sources_digest() -> str:
    """Return what changes when a source does."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.yaml")):
        digest.update(f"{path.relative_to(SOURCES)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def render(kubectl: str) -> dict[str, str]:
    """Return each overlay as it is, and with all components that it names turned on."""
    rendered = {}
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(SOURCES, Path(scratch) / "kubernetes"))
        for overlay in OVERLAYS:
            folder = copy / "overlays" / overlay
            rendered[overlay] = _kustomize(kubectl, folder)
            file = folder / "kustomization.yaml"
            turned_on = re.sub(r"^# ?(components:|  - \.\./)", r"\1", file.read_text(), flags=re.M)
            file.write_text(turned_on)
            rendered[f"{overlay}-with-components"] = _kustomize(kubectl, folder)
    return rendered


def _kustomize(kubectl: str, folder: Path) -> str:
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def main() -> None:
    """Write what tests look at."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        sys.exit("kubectl is not installed, and it is what renders")
    RENDERED.mkdir(exist_ok=True)
    head = f"# Written by `make manifests`; sources {sources_digest()}\n"
    for name, text in render(kubectl).items():
        (RENDERED / f"{name}.yaml").write_text(head + text)


if __name__ == "__main__":
    main()
