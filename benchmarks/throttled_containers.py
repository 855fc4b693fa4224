"""Time a training step of a federation in containers, 20 ms and 100 Mbit/s apart.

Needs what tests/containers needs: a Docker engine, root, and the script that holds packets back.
The results are in benchmarks/README.md.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "containers"))

from compose_trial import Trial
from engine import ROOT, NoEngine, open_engine
from throttle import CannotThrottle
from throttled import measure, write_override


def main() -> None:
    """Build, train, and print the figures."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    try:
        engine = open_engine()
    except NoEngine as reason:
        sys.exit(str(reason))
    try:
        compose = ["docker", "compose", "-f", str(ROOT / "deploy" / "compose.yaml")]
        engine.run([*compose, "build", "--quiet", "coordinator", "certs"], timeout_s=900)
        with tempfile.TemporaryDirectory(prefix="laser-vfl-bench-") as directory:
            override = write_override(Path(directory))
            with Trial(engine, "laser-vfl-bench-throttled", override) as trial:
                print(json.dumps(measure(trial)))
    except CannotThrottle as reason:
        sys.exit(str(reason))
    finally:
        engine.close()


if __name__ == "__main__":
    main()
