"""One training run of an experiment, and what its scores are written down as."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

BETA: Literal["beta"] = "beta"
"""Each block has its own probability of being missing, drawn from Beta(2, 2)."""

PMiss = float | Literal["beta"]
Metric = Literal["accuracy", "f1"]
JsonScalar = str | int | float | bool | None
Changes = tuple[tuple[str, JsonScalar], ...]
"""Settings that differ from the data set's YAML, by dotted names such as training.epochs."""


@dataclass(frozen=True)
class Case:
    """One training run; it is scored for each `p_test` once it has been trained."""

    dataset: str
    method: str
    p_train: PMiss
    p_test: tuple[PMiss, ...]
    seed: int
    num_clients: int = 4
    variant: str = ""
    changes: Changes = ()

    def key(self) -> str:
        """Return a text that says which run this is, whatever it is scored for."""
        changes = dict(sorted(self.changes))
        words = [
            self.dataset,
            self.method,
            f"p_train={shown_p(self.p_train)}",
            f"seed={self.seed}",
            f"clients={self.num_clients}",
            f"variant={self.variant}",
            json.dumps(changes, separators=(",", ":")),
        ]
        return " ".join(words)

    def __str__(self) -> str:
        many = "" if self.num_clients == 4 else f", {self.num_clients} clients"
        variant = f" ({self.variant})" if self.variant else ""
        trained = f"p_train {shown_p(self.p_train)}, seed {self.seed}{many}"
        return f"{self.dataset} {self.method}{variant}, {trained}"


class Result(TypedDict):
    """The score of one run for one `p_test`."""

    dataset: str
    method: str
    variant: str
    p_train: PMiss
    p_test: PMiss
    seed: int
    num_clients: int
    metric: Metric
    score: float
    by_client: dict[str, float | None]
    num_steps: int
    seconds: float
    seconds_per_step: float
    engine: str


def shown_p(p: PMiss) -> str:
    """Return a probability as people write it: 0, 0.1 or beta."""
    return p if p == BETA else f"{p:g}"


def hash_of(settings: Mapping[str, Any]) -> str:
    """Return a short text that differs when the settings do."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
