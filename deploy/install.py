"""Fill the image's environment from the lock files: nothing else, and no file of another hash."""

import argparse
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from locked import EVERYWHERE, Locked, needed_by, read_lock

LOCK = Path(__file__).parent / "lock"
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
    package = steps.add_parser("package")
    package.add_argument("source")
    package.add_argument("--root", required=True)
    steps.add_parser("strip")
    options = parser.parse_args()
    if options.step == "torch":
        install_torch(options.kind, options.index)
    elif options.step == "dependencies":
        install_dependencies(options.extras, options.root)
    elif options.step == "package":
        install_package(options.source, options.root)
    else:
        strip()


def install_torch(kind: str, index: str) -> None:
    """Install the release that is locked, built for the CPU alone or for CUDA."""
    more = ["--index-url", index] if index else []
    if kind == "cuda":
        # Wheels at hand may be of the other kind, and pip would prefer them.
        os.environ.pop("PIP_FIND_LINKS", None)
        install(read_lock(LOCK / "torch-cuda.txt"), *more)
    elif not install(read_lock(LOCK / "torch-cpu.txt"), *more, check=False):
        print("no such build of torch for the CPU alone is known here, of a hash that is locked;")
        print("taking the ordinary one, which may be larger")
        install(read_lock(LOCK / "torch-cuda.txt"), *more)
    found = runpy.run_path(str(SITE / "site-packages" / "torch" / "version.py"))["cuda"]
    if kind == "cuda" and not found:
        sys.exit("this torch is not built for CUDA: name an index that has such builds")


def install_dependencies(extras: str, root: str) -> None:
    """Install what the package needs, without the package; under a root, only what is new."""
    entries = read_lock(LOCK / "dependencies.txt")
    wanted = [extra for extra in extras.split(",") if extra]
    known = set().union(*(entry.groups for entry in entries))
    if unknown := set(wanted) - known:
        sys.exit(f"not locked: {', '.join(sorted(unknown))}; extras are {', '.join(sorted(known))}")
    install(needed_by(entries, [EVERYWHERE, *wanted]), "--root", root)


def install_package(source: str, root: str) -> None:
    """Build the package with the tools that are locked, and install it; they stay behind."""
    with tempfile.TemporaryDirectory() as wheels:
        with requirements(read_lock(LOCK / "build.txt")) as path:
            subprocess.run(["pip", "install", *STRICT, "-r", path], check=True)
        build = ["pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", wheels, source]
        subprocess.run(build, check=True)
        (wheel,) = Path(wheels).glob("*.whl")
        pip("--no-deps", "--no-index", "--root", root, str(wheel))


def strip() -> None:
    """Remove what no daemon loads."""
    for pattern in NEVER_LOADED:
        for path in sorted((SITE / "site-packages").glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


STRICT = ("--require-hashes", "--no-deps", "--only-binary=:all:")


@contextmanager
def requirements(entries: Iterable[Locked]) -> Iterator[str]:
    """Write some locked releases to a file, for as long as pip reads it."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(entry.line + "\n" for entry in entries))
        file.flush()
        yield file.name


def install(entries: Iterable[Locked], *arguments: str, check: bool = True) -> bool:
    """Install locked releases into the image's environment; return whether it worked."""
    with requirements(entries) as path:
        return pip(*STRICT, *arguments, "-r", path, check=check)


def pip(*arguments: str, check: bool = True) -> bool:
    """Install into the image's environment; return whether it worked."""
    command = ["pip", "--python", str(ENVIRONMENT / "bin" / "python"), "install", *arguments]
    return subprocess.run(command, check=check).returncode == 0


if __name__ == "__main__":
    main()
