"""The scripts of the supply chain, which are no package, for the tests of them."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "deploy")]

import audit  # noqa: E402
import lock  # noqa: E402
import locked  # noqa: E402
import sbom  # noqa: E402
import supply_audit  # noqa: E402

__all__ = ["ROOT", "audit", "lock", "locked", "sbom", "supply_audit"]
