"""Predictions as applications have them, from what a daemon answers. Without torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from laser_vfl.core.errors import ContractError, quoted
from laser_vfl.core.subsets import MAX_CLIENTS
from laser_vfl.v1 import prediction_pb2 as pb

NO_REASON = "the daemon gave no reason"


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a client daemon predicts for n samples; arrays are in the order of `ids`.

    A sample without a prediction has its reason in `errors`, no blocks, and in place of its label
    NaN (regression) or None: `labels` is then an array of objects.
    """

    ids: tuple[str, ...]
    run: str
    task: str
    classes: npt.NDArray[Any]
    labels: npt.NDArray[Any]
    probabilities: npt.NDArray[np.float32] | None
    """(n, classes), NaN where there is no prediction; None in a regression."""
    roster: tuple[str, ...]
    blocks: npt.NDArray[np.bool_]
    """(n, clients) in roster order: the blocks that a prediction used; none for a guess."""
    expected_scores: npt.NDArray[np.float64]
    """What the last evaluation says of those blocks; NaN when it does not know."""
    score_name: str
    errors: tuple[str | None, ...]
    peers: dict[str, str]
    """Why a peer's blocks are missing; empty text when it answered."""
    missing: npt.NDArray[np.bool_]
    """(n, clients): the blocks that a prediction lacks because their client did not give them."""
    peers_up: frozenset[str]
    """The peers that are up; one of them with a problem was too slow, or limits its answers."""
    num_unaligned: int = 0
    """How many ids came with features and are asked of no other client, now or later."""
    unaligned_reason: str = ""
    """Why; empty when there are none."""

    @property
    def block_names(self) -> list[str]:
        """The blocks of each sample as people read them: "bank,shop"."""
        named: dict[bytes, str] = {}
        for row in self.blocks:
            if row.tobytes() not in named:
                used = zip(self.roster, row, strict=True)
                named[row.tobytes()] = ",".join(client for client, has_block in used if has_block)
        return [named[row.tobytes()] for row in self.blocks]


def decode_predictions(ids: Sequence[str], response: pb.PredictResponse) -> Predictions:
    """Return what a daemon answered, or refuse an answer that does not fit the question."""
    num_ids, num_classes = len(ids), len(response.classes)
    is_regression = response.task == "regression"
    if response.task not in ("multiclass", "binary", "regression"):
        raise ContractError(f"there is no task {quoted(response.task)}")
    if bool(num_classes) == is_regression:
        raise ContractError(f"a {response.task} task cannot have {num_classes} classes")
    errors = _errors(response, num_ids)
    failed = np.array([error is not None for error in errors], dtype=bool)
    num_labels = 0 if is_regression else num_ids
    _expect(len(response.blocks), num_ids, "sets of blocks")
    _expect(len(response.class_places), num_labels, "classes of samples")
    _expect(len(response.values), num_ids - num_labels, "values")
    _expect(len(response.probabilities), num_labels * num_classes * 4, "bytes of probabilities")
    masks = np.fromiter(response.blocks, np.uint64, num_ids)
    masks[failed] = 0
    missing = np.zeros(num_ids, dtype=np.uint64)
    if response.missing_blocks:
        _expect(len(response.missing_blocks), num_ids, "sets of missing blocks")
        missing = np.fromiter(response.missing_blocks, np.uint64, num_ids)
    classes = _classes(tuple(response.classes), response.class_kind).copy()
    return Predictions(
        ids=tuple(ids),
        run=response.run,
        task=response.task,
        classes=classes,
        labels=_values(response, failed) if is_regression else _labels(response, classes, failed),
        probabilities=None if is_regression else _probabilities(response, failed),
        roster=tuple(response.roster),
        blocks=_blocks(masks, len(response.roster)),
        expected_scores=_expected_scores(response, masks),
        score_name=response.score_name,
        errors=errors,
        peers={peer.client: peer.problem for peer in response.peers},
        missing=_blocks(missing, len(response.roster)),
        peers_up=frozenset(peer.client for peer in response.peers if peer.up),
        num_unaligned=response.unaligned.num,
        unaligned_reason=response.unaligned.reason,
    )


def _errors(response: pb.PredictResponse, num_ids: int) -> tuple[str | None, ...]:
    errors: list[str | None] = [None] * num_ids
    for error in response.errors:
        if error.place >= num_ids:
            raise ContractError(f"there is no sample {error.place} among {num_ids}")
        errors[error.place] = error.message or NO_REASON
    return tuple(errors)


@lru_cache(maxsize=16)
def _classes(names: tuple[str, ...], kind: str) -> npt.NDArray[Any]:
    """Return the classes that a daemon names; all its answers name the same."""
    if kind == "boolean":
        if not set(names) <= {"true", "false"}:
            raise ContractError("a boolean class is neither true nor false")
        return np.array([name == "true" for name in names], dtype=bool)
    if kind == "number":
        try:
            return np.array([int(name) for name in names], dtype=np.int64)
        except OverflowError:  # as floats they might not be different from each other
            return np.array(names, dtype=str)
        except ValueError:
            pass
        try:
            return np.array([float(name) for name in names], dtype=np.float64)
        except ValueError:
            raise ContractError("a class that should be a number is none") from None
    return np.array(names, dtype=str)


def _labels(
    response: pb.PredictResponse, classes: npt.NDArray[Any], failed: npt.NDArray[np.bool_]
) -> npt.NDArray[Any]:
    places = np.fromiter(response.class_places, np.int64, len(failed))
    places[failed] = 0
    if places.size and places.max() >= len(classes):
        raise ContractError(f"there is no class {places.max()} among {len(classes)}")
    labels = classes[places]
    if failed.any():
        labels = np.array(labels.tolist(), dtype=object)
        labels[failed] = None
    return labels


def _values(response: pb.PredictResponse, failed: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    values = np.fromiter(response.values, np.float64, len(failed))
    values[failed] = math.nan
    return values


def _probabilities(
    response: pb.PredictResponse, failed: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float32]:
    sent = np.frombuffer(response.probabilities, dtype="<f4")
    probabilities = sent.reshape(len(failed), len(response.classes)).astype(np.float32)
    probabilities[failed] = math.nan
    return probabilities


def _blocks(masks: npt.NDArray[np.uint64], num_clients: int) -> npt.NDArray[np.bool_]:
    if num_clients > MAX_CLIENTS:
        raise ContractError(f"a roster has at most {MAX_CLIENTS} clients, not {num_clients}")
    if masks.size and int(masks.max()) >> num_clients:
        raise ContractError(f"a block is of none of the {num_clients} clients")
    if not masks.any():
        return np.zeros((len(masks), num_clients), dtype=bool)
    shifts = np.arange(num_clients, dtype=np.uint64)
    return (masks[:, None] >> shifts & np.uint64(1)).astype(bool)


def _expected_scores(
    response: pb.PredictResponse, masks: npt.NDArray[np.uint64]
) -> npt.NDArray[np.float64]:
    known = {one.blocks: one.score for one in response.scores if one.HasField("score")}
    return np.array([known.get(mask, math.nan) for mask in masks.tolist()], dtype=np.float64)


def _expect(found: int, expected: int, what: str) -> None:
    if found != expected:
        raise ContractError(f"expected {expected} {what}, got {found}")
