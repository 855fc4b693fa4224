"""Tables for tests, with something to learn in them."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl


class People:
    """Made-up samples with something to learn: a latent vector, and blocks and labels from it."""

    def __init__(self, num: int, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self.num = num
        self._latent = self._rng.standard_normal((num, 4))
        self.labels = {
            "kind": np.array(["red", "green", "blue"])[self._latent[:, :3].argmax(axis=1)],
            "flag": (self._latent[:, 0] > 0.6).astype(np.int64),
            "amount": np.round(10 + 3 * self._latent[:, 1], 4),
        }

    def write(
        self,
        directory: Path,
        name: str,
        *,
        p_hold: float = 0.8,
        label: str | None = "kind",
        p_unlabelled: float = 0.0,
        num_features: int = 5,
        suffix: str = "csv",
        test_share: float = 0.0,
        held: "np.ndarray[Any, Any] | None" = None,
    ) -> None:
        """Write the rows that one client happens to hold, for training and for testing."""
        rng = self._rng
        mixing = rng.standard_normal((4, num_features))
        block = self._latent @ mixing + 0.3 * rng.standard_normal((self.num, num_features))
        holds = rng.random(self.num) < p_hold if held is None else held
        is_test = np.arange(self.num) >= self.num * (1 - test_share)
        missing = rng.random(self.num) < p_unlabelled
        frame = pl.DataFrame(
            {
                "id": [f"person-{i:05d}" for i in range(self.num)],
                **{f"x{j}": block[:, j] for j in range(num_features)},
            }
        )
        if label is not None:
            known = pl.Series(label, self.labels[label])
            frame = frame.with_columns(
                pl.when(pl.Series(missing)).then(None).otherwise(known).alias(label)
            )
        for table, rows in (("train", holds & ~is_test), ("test", holds & is_test)):
            if not rows.any():
                continue
            chosen = frame.filter(pl.Series(rows)).sample(fraction=1.0, shuffle=True, seed=1)
            path = directory / f"{name}_{table}.{suffix}"
            if suffix == "csv":
                chosen.write_csv(path)
            elif suffix == "parquet":
                chosen.write_parquet(path)
            else:
                features = chosen.select(pl.col("^x.*$")).to_numpy()
                arrays = {"id": chosen["id"].to_numpy().astype("U"), "x": features}
                if label is not None:
                    values = chosen[label].to_numpy()
                    arrays[label] = values.astype("U") if values.dtype == object else values
                np.savez(path, **arrays)
