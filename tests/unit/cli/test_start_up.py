"""A command starts fast: what is large is imported when it is needed, and not before."""

import json
import subprocess
import sys

LARGE = {"torch", "grpc", "numpy", "polars", "rich", "matplotlib", "pydantic", "sklearn"}

HELP = """
import json, sys
from laser_vfl.cli.main import app
app(["--help"], standalone_mode=False)
print(json.dumps(sorted(sys.modules)))
"""


def test_help_loads_nothing_large():
    finished = subprocess.run(
        [sys.executable, "-c", HELP], capture_output=True, text=True, timeout=60, check=True
    )
    *shown, loaded = finished.stdout.splitlines()
    assert any("predict" in line for line in shown)
    found = set(json.loads(loaded))
    assert "laser_vfl.cli.main" in found
    assert not LARGE & found
