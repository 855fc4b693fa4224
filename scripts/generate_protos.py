"""Generate laser_vfl/v1 from protos/, into the tree or into another directory."""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PLUGINS = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")


def generate(out: Path) -> None:
    """Write the generated package laser_vfl/v1 below `out`."""
    sources = sorted((ROOT / "protos").rglob("*.proto"))
    arguments = [
        "protoc",
        f"--proto_path={ROOT / 'protos'}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        *(f"--plugin={Path(sys.executable).parent / name}" for name in PLUGINS),
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *(str(source.relative_to(ROOT / "protos")) for source in sources),
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit("protoc failed")
    (out / "laser_vfl" / "v1" / "__init__.py").touch()


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
