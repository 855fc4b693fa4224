"""Time the grouping of blinded points at the coordinator, and the memory that it takes.

Each repetition is a process of its own, so that its peak is its own. The points are random, and
any two clients share about half of theirs. The results are in benchmarks/README.md.
"""

import argparse
import json
import multiprocessing
import time
from pathlib import Path
from statistics import median

import numpy as np

from laser_vfl.core.alignment import DIGEST_BYTES, align


def measure(num_clients: int, num_points: int) -> tuple[float, float]:
    """Return seconds, and the highest resident memory of this process in MB, inputs included."""
    random = np.random.default_rng(0)
    pool = random.integers(0, 256, (2 * num_points, DIGEST_BYTES), dtype=np.uint8)
    lists = [pool[random.permutation(len(pool))[:num_points]] for _ in range(num_clients)]
    del pool
    started = time.perf_counter()
    align(lists)
    seconds = time.perf_counter() - started
    status = Path("/proc/self/status").read_text()
    (peak_kb,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return seconds, int(peak_kb) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the grouping of blinded points.")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--points", type=int, default=1_000_000, help="points of each client")
    parser.add_argument("--repeats", type=int, default=3, help="median time, highest peak")
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as fresh:
        runs = [fresh.apply(measure, (args.clients, args.points)) for _ in range(args.repeats)]
    result = {
        "clients": args.clients,
        "points_per_client": args.points,
        "seconds": round(median(seconds for seconds, _ in runs), 3),
        "peak_mb": round(max(peak_mb for _, peak_mb in runs)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
