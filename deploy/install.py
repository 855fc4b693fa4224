"""Fill the image's environment: torch as asked for, all else that is needed, and nothing more."""

import argparse
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

SOURCE = Path(__file__).parent
ENVIRONMENT = Path("/opt/laser-vfl")
SITE = ENVIRONMENT / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"

NEVER_LOADED = (
    "torch/include",
    "torch/share",
    "torch/test",
    "torch/bin/*Test*",
    "torch/bin/*test*",
    "torch/bin/*.ptl",
    "torch/bin/protoc*",
    "torch/bin/upgrader_models",
    "torch/lib/*test*",
    "torch/lib/*.a",
    "numpy/**/tests",
    "sympy/**/tests",
    "networkx/**/tests",
    "setuptools*",
    "_distutils_hack",
    "distutils-precedence.pth",
)
"""Headers for compilers, tests, programs that nothing here starts, and what torch builds with."""


def main() -> None:
    """Do one step of the build."""
    parser = argparse.ArgumentParser(description=__doc__)
    steps = parser.add_subparsers(dest="step", required=True)
    torch = steps.add_parser("torch")
    torch.add_argument("kind", choices=["cpu", "cuda"])
    torch.add_argument("--index", default="")
    dependencies = steps.add_parser("dependencies")
    dependencies.add_argument("extras")
    dependencies.add_argument("--root", default="/")
    steps.add_parser("strip")
    options = parser.parse_args()
    if options.step == "torch":
        install_torch(options.kind, options.index)
    elif options.step == "dependencies":
        install_dependencies(options.extras, options.root)
    else:
        strip()


def install_torch(kind: str, index: str) -> None:
    """Install the release that is pinned, built for the CPU alone or for CUDA."""
    lines = (SOURCE / "constraints.txt").read_text().splitlines()
    release = next(line for line in lines if line.startswith("torch=="))
    more = ["--index-url", index] if index else []
    if kind == "cuda":
        # Wheels at hand may be of the other kind, and pip would prefer them.
        os.environ.pop("PIP_FIND_LINKS", None)
        pip(*more, release)
    elif not pip(*more, f"{release}+cpu", check=False):
        print(f"no {release}+cpu is known here; taking {release} as it is, which may be larger")
        pip(*more, release)
    probe = "import torch; print(torch.version.cuda or '')"
    found = subprocess.check_output([ENVIRONMENT / "bin" / "python", "-c", probe], text=True)
    if kind == "cuda" and not found.strip():
        sys.exit("this torch is not built for CUDA: name an index that has such builds")


def install_dependencies(extras: str, root: str) -> None:
    """Install what the package needs, without the package; under a root, only what is new."""
    project = tomllib.loads((SOURCE / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in filter(None, extras.split(",")):
        wanted += project["optional-dependencies"][extra]
    pip("--root", root, *wanted)


def strip() -> None:
    """Remove what no daemon loads."""
    for pattern in NEVER_LOADED:
        for path in sorted((SITE / "site-packages").glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def pip(*arguments: str, check: bool = True) -> bool:
    """Install into the image's environment; return whether it worked."""
    command = ["pip", "--python", str(ENVIRONMENT / "bin" / "python"), "install"]
    command += ["--constraint", str(SOURCE / "constraints.txt"), *arguments]
    return subprocess.run(command, check=check).returncode == 0


if __name__ == "__main__":
    main()
