"""Print the AUC of each subset of blocks from a scores.json: `python show_scores.py FILE`."""

import json
import sys
from pathlib import Path


def lines(scores: dict) -> list[str]:
    """Return a table: the client alone, all blocks that a sample has, then every subset."""
    alone, *others = scores["by_subset"].items()
    whatever = {**scores["overall"], "num_samples": scores["num_samples"]}
    rows = [alone, ("whatever each sample has", whatever), *others]
    body = [f"{name:26}{shown(entry['auc'])}{entry['num_samples']:9}" for name, entry in rows]
    return [f"{'blocks':26}{'AUC':>6}{'samples':>9}", *body]


def shown(auc: float | None) -> str:
    """Return an AUC; there is none where all samples are of one class."""
    return f"{'-':>6}" if auc is None else f"{auc:6.3f}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python show_scores.py bank-state/scores.json")
    print("\n".join(lines(json.loads(Path(sys.argv[1]).read_text()))))
