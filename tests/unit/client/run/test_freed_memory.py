"""Memory that an alignment has freed is the system's again, not the process's."""

import subprocess
import sys

SCRIPT = """
import numpy as np, psutil
from laser_vfl.client.run.own_alignments import freed_memory_returned

def resident():
    return psutil.Process().memory_info().rss

np.ones(1 << 22).sum()  # after which pieces of some size would be kept
before = resident()
with freed_memory_returned():
    pieces = [np.ones(1 << 20, dtype=np.uint8) for _ in range(40)]
    behind_them = [bytes(1000) for _ in range(100)]
    assert resident() - before > 32 << 20
    del pieces
    assert resident() - before < 8 << 20
"""


def test_large_pieces_are_given_back():
    assert subprocess.run([sys.executable, "-c", SCRIPT], check=False).returncode == 0
