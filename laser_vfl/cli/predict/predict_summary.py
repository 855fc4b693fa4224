"""The summary that `predict` prints at its end."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laser_vfl.cli.predict.predict_output import class_names, known
from laser_vfl.config.text import one_line
from laser_vfl.core.errors import MismatchError, quoted
from laser_vfl.transport.prediction_replies import Predictions

NUM_REASONS = 3
GUESSED = "no block, by a guess"
"""The blocks of a sample for which a method has no predictor."""


@dataclass
class Summary:
    """Counts over all samples of a file, in constant memory."""

    task: str = ""
    score_name: str = ""
    class_names: tuple[str, ...] = ()
    runs: list[str] = field(default_factory=list)
    num_samples: int = 0
    num_errors: int = 0
    reasons: list[str] = field(default_factory=list)
    by_blocks: dict[str, dict[str, Any]] = field(default_factory=dict)
    peers: dict[str, str] = field(default_factory=dict)
    num_lacking: int = 0
    """Samples that lack a block because its client did not give it."""
    num_lacking_up: int = 0
    """How many of them lack it though that client is up."""
    lacking: dict[str, int] = field(default_factory=dict)
    """How many samples lack the block of each client, for that reason."""
    lacking_up: list[str] = field(default_factory=list)
    """The clients whose blocks samples lack though they are up."""

    def add(self, predictions: Predictions) -> None:
        """Count some predictions; they must be of the same classes as those before."""
        names = tuple(class_names(predictions))
        if self.runs and (predictions.task, names) != (self.task, self.class_names):
            raise MismatchError(
                "the model was replaced by one with other classes while scoring",
                hint="start again",
            )
        self.task, self.class_names = predictions.task, names
        self.score_name = predictions.score_name
        if predictions.run not in self.runs:
            self.runs.append(predictions.run)
        blocks, scores = predictions.block_names, predictions.expected_scores.tolist()
        for row, error in enumerate(predictions.errors):
            self.num_samples += 1
            if error is None:
                entry = self.by_blocks.setdefault(blocks[row], {"num_samples": 0})
                entry["num_samples"] += 1
                entry["expected_score"] = known(scores[row])
                continue
            self.num_errors += 1
            if len(self.reasons) < NUM_REASONS:
                self.reasons.append(f"{quoted(predictions.ids[row])}: {one_line(error)}")
        for client, problem in predictions.peers.items():
            self.peers[client] = problem or self.peers.get(client, "")
        self._count_lacking(predictions)

    def _count_lacking(self, predictions: Predictions) -> None:
        missing = predictions.missing
        if not missing.any():
            return
        is_up = [client in predictions.peers_up for client in predictions.roster]
        self.num_lacking += int(missing.any(axis=1).sum())
        self.num_lacking_up += int(missing[:, is_up].any(axis=1).sum())
        for client, num in zip(predictions.roster, missing.sum(axis=0).tolist(), strict=True):
            if num and client in predictions.peers_up and client not in self.lacking_up:
                self.lacking_up.append(client)
            if num:
                self.lacking[client] = self.lacking.get(client, 0) + num

    def as_dict(self, out: Path, seconds: float) -> dict[str, Any]:
        """Return it for --format json; `run` is the last of `runs`."""
        return {
            "run": self.runs[-1],
            "runs": self.runs,
            "task": self.task,
            "num_samples": self.num_samples,
            "num_predicted": self.num_samples - self.num_errors,
            "num_errors": self.num_errors,
            "score_name": self.score_name,
            "by_blocks": self.by_blocks,
            "peers": self.peers,
            "num_lacking": self.num_lacking,
            "num_lacking_up": self.num_lacking_up,
            "lacking": self.lacking,
            "out": str(out),
            "seconds": round(seconds, 3),
        }

    def lines(self, seconds: float) -> Iterator[str]:
        """Yield it for a person."""
        num_predicted = self.num_samples - self.num_errors
        yield f"{num_predicted} of {self.num_samples} samples predicted in {seconds:.1f} s"
        if len(self.runs) == 1:
            yield f"run {self.runs[0]}"
        else:
            yield f"the model was replaced while scoring: runs {', '.join(self.runs)}"
        for blocks, entry in sorted(
            self.by_blocks.items(), key=lambda item: (item[0].count(","), item[0])
        ):
            score = entry["expected_score"]
            said = "unknown" if score is None else f"{score:.3f}"
            num, expected = entry["num_samples"], f"expected {self.score_name} {said}"
            yield f"  with {blocks or GUESSED}: {num}, {expected}"
        if self.num_lacking_up:
            yield f"{self.num_lacking_up} samples lack a block of a client that is up"
        for client, problem in self.peers.items():
            if problem:
                num = self.lacking.get(client)
                said = f"not had for {num} samples: " if num else ""
                yield f"  {client}: {said}{one_line(problem)}"
        if self.num_errors:
            yield f"{self.num_errors} without a prediction, such as"
            yield from (f"  {reason}" for reason in self.reasons)
