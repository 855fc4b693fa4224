"""bfloat16 on a CPU: some virtual machines announce instructions that they cannot execute."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

log = logging.getLogger(__name__)

PROBE = """
import torch
torch.set_num_threads(1)
with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
    torch.nn.Linear(64, 64)(torch.ones(64, 64))
"""
PROBE_TIMEOUT_S = 60.0

LIMIT = "ONEDNN_MAX_CPU_ISA"
WITHOUT_AMX = "AVX512_CORE_FP16"

_CPU_INFO = Path("/proc/cpuinfo")


def avoid_broken_instructions() -> None:
    """Switch AMX off where using it kills a process; a child process finds that out.

    Has to be called before torch first computes in bfloat16: it looks at its limit only then.
    """
    if LIMIT in os.environ or not _announces_amx():
        return
    probe = subprocess.run(
        [sys.executable, "-c", PROBE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PROBE_TIMEOUT_S,
        check=False,
    )
    if probe.returncode == -signal.SIGILL:
        log.warning("this machine announces AMX but cannot execute it; bfloat16 does without")
        os.environ[LIMIT] = WITHOUT_AMX


def _announces_amx() -> bool:
    try:
        return "amx_tile" in _CPU_INFO.read_text()
    except OSError:
        return False
