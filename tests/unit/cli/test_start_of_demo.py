"""The demo starts its processes before it imports what only they need."""

import subprocess
import sys

FRESH = """
import sys
import laser_vfl.cli.demo.demo_command
from laser_vfl.data.sets.digits import read_digits

read_digits()
sys.exit(any(name in sys.modules for name in ("torch", "sklearn", "grpc")))
"""


def test_it_needs_neither_torch_nor_scikit_learn():
    assert subprocess.run([sys.executable, "-c", FRESH], check=False).returncode == 0
