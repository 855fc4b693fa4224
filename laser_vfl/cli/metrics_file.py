"""What a client's metrics.jsonl says of its steps."""

import json
from pathlib import Path
from typing import Any


def step_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines about steps, in order; those about events are left out."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    whole = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [line for line in map(json.loads, whole) if "event" not in line]
