"""The ablations of LASER-VFL: what each varies, and for whom."""

from dataclasses import dataclass
from typing import Final

from laser_vfl.experiments.grid.expansion import Variant
from laser_vfl.experiments.grid.names import PRODUCT_DEFAULTS

METHOD: Final = PRODUCT_DEFAULTS
"""The method with the product's defaults, of which a variant changes one choice or two."""


@dataclass(frozen=True)
class Ablation:
    """Variants that are compared, all else being equal."""

    title: str
    variants: tuple[Variant, ...]
    clients: str
    p_miss: str
    shows_clients: bool = False


def _one(setting: str, **values: str) -> tuple[Variant, ...]:
    return tuple(Variant(name, ((setting, value),)) for name, value in values.items())


ABLATIONS: Final = {
    "batching": Ablation(
        "Batches of one pattern or of all, subsets drawn for a batch or for each sample",
        tuple(
            Variant(
                f"{batching}, {sampling}",
                (("training.batching", batching), ("training.task_sampling", sampling)),
            )
            for batching in ("mixed", "by_pattern")
            for sampling in ("per_sample", "per_batch")
        ),
        clients="4,8",
        p_miss="0.5",
    ),
    "loss-weighting": Ablation(
        "Losses weighted by how often a subset is observed, or not",
        _one("training.loss_weighting", none="none", availability="availability"),
        clients="4",
        p_miss="beta",
    ),
    "labels": Ablation(
        "Labels at one client only, or at all",
        (Variant("at all clients"), Variant("at bank only", (("data.labels_at", "bank"),))),
        clients="4",
        p_miss="0.1,0.5",
        shows_clients=True,
    ),
    "tasks": Ablation(
        "Two label sets on one data set, trained together or each alone",
        _one(
            "data.tasks", **{"together": "split", "first alone": "first", "second alone": "second"}
        ),
        clients="4",
        p_miss="0.1,0.5",
        shows_clients=True,
    ),
}
