"""The input of `report`: each client's scores, from its state or from its own report."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, FiniteFloat, ValidationError, model_validator

from laser_vfl.client.config import ClientConfig
from laser_vfl.config.field_types import Name
from laser_vfl.config.loading import is_of, load_config
from laser_vfl.config.text import one_line
from laser_vfl.coordinator.config import CoordinatorConfig
from laser_vfl.core.errors import ConfigError, DataError, MismatchError, NotReady
from laser_vfl.core.subsets import MAX_CLIENTS, has, mask_of

MAX_BYTES = 64 << 20
"""No manifest and no report is larger."""

Entry = dict[str, FiniteFloat | None]
Count = Annotated[int, Field(ge=0)]


class FullyObserved(BaseModel):
    """The scores of all subsets on the same rows."""

    blocks: str
    num_samples: Count
    constant: Entry
    by_subset: dict[str, Entry]


class Scores(BaseModel):
    """The part of scores.json that a report needs; older releases wrote less of it."""

    by_subset: dict[str, Entry]
    constant: Entry = Field(default_factory=dict)
    fully_observed: FullyObserved | None = None
    orders: list[list[Name]] = Field(default_factory=list)


class ReportSource(BaseModel):
    """One client's model and scores, as far as a report needs them."""

    federation: Name
    client: Name
    run: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
    roster: Annotated[list[Name], Field(min_length=1, max_length=MAX_CLIENTS)]
    heads: list[Name]
    task: Literal["multiclass", "binary", "regression"] | None
    scores: Scores | None

    @model_validator(mode="after")
    def _fits_together(self) -> "ReportSource":
        if len(set(self.roster)) < len(self.roster) or self.client not in self.roster:
            raise ValueError("its roster")
        if not set(self.heads) <= set(self.roster):
            raise ValueError("its heads")
        if any(sorted(order) != sorted(self.roster) for order in self.orders):
            raise ValueError("its orders")
        if self.scores is not None:
            full = self.scores.fully_observed
            subsets = [*self.scores.by_subset, *(full.by_subset if full else ())]
            if not all(has(self.mask(subset), self.me) for subset in subsets):
                raise ValueError("its subsets")
        return self

    @property
    def me(self) -> int:
        """The client's place in the roster."""
        return self.roster.index(self.client)

    @property
    def orders(self) -> list[list[str]]:
        """In which blocks were added; none if all subsets were scored."""
        return self.scores.orders if self.scores else []

    def mask(self, subset: str) -> int:
        """Return the mask of a subset's name."""
        return mask_of(self.roster.index(name) for name in subset.split(","))


def view_of_config(path: Path) -> ReportSource:
    """Read what a client of this machine has in its state; its daemon may be down."""
    if is_of(path, CoordinatorConfig, ClientConfig):
        raise ConfigError(
            "this is a coordinator's, and no client tells its coordinator how well it predicts",
            where=str(path),
            hint="give --config of each client, or --with their reports",
        )
    config = load_config(path, ClientConfig)
    manifest = config.state / "model" / "manifest.json"
    if not manifest.exists():
        raise NotReady(
            f"{config.name} has no model yet",
            where=str(path),
            hint="ask again when training has finished",
        )
    stored = _read(manifest)
    labels = stored.get("labels")
    task = labels.get("task") if isinstance(labels, dict) else None
    view = _view({**stored, "task": task}, manifest)
    if (view.federation, view.client) != (config.federation, config.name):
        raise MismatchError(
            f"its state has a model of {view.client} in {view.federation}",
            where=str(path),
            hint="correct `federation`, `name` or `state`",
        )
    return view


def views_of_report(path: Path) -> list[ReportSource]:
    """Read what another organisation's report.json tells of its clients."""
    views = _read(path).get("views")
    if not isinstance(views, list) or not views:
        raise DataError("this is not a report", where=str(path), hint="give a report.json")
    return [_view(view, path) for view in views]


def check_together(views: Sequence[ReportSource]) -> None:
    """Refuse views of different federations or runs."""
    first = views[0]
    for view in views[1:]:
        if view.federation != first.federation:
            raise MismatchError(
                f"{first.client} is of federation {first.federation}, "
                f"{view.client} of {view.federation}",
                hint="report on one federation at a time",
            )
        if view.run != first.run or view.roster != first.roster:
            raise MismatchError(
                f"{first.client} has the model of run {first.run}, {view.client} of run {view.run}",
                hint="models of different runs are never combined; "
                "wait until all have finished the last run",
            )
    clients = [view.client for view in views]
    for client in clients:
        if clients.count(client) > 1:
            raise ConfigError(f"{client} is given twice", hint="give each client once")


def scored(views: Sequence[ReportSource]) -> list[ReportSource]:
    """Return the views with scores; refuse if there is none."""
    found = [view for view in views if view.scores is not None and view.scores.by_subset]
    if found:
        return found
    if len(views) > 1:
        names = ", ".join(view.client for view in views)
        raise NotReady(f"none of {names} has scores", hint="give one with labels and a test table")
    view = views[0]
    if view.task is None:
        others = " or ".join(name for name in view.heads if name != view.client)
        raise NotReady(
            f"{view.client} has no head to report on",
            hint=f"ask {others}" if others else "",
        )
    raise NotReady(
        f"{view.client} has tested nothing: its model came without a test table, or with an empty "
        "one",
        hint="set `data.test`, and train again",
    )


def _read(path: Path) -> dict[str, Any]:
    where = one_line(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError("is too large", where=where, hint="give a report.json")
        found = json.loads(content)
    except OSError as error:
        raise DataError(
            f"cannot be read ({error.strerror})", where=where, hint="check the path"
        ) from None
    except (ValueError, RecursionError):
        raise DataError("is not JSON", where=where, hint="give a report.json") from None
    if not isinstance(found, dict):
        raise DataError("is not a JSON object", where=where, hint="give a report.json")
    return found


def _view(stored: Any, path: Path) -> ReportSource:
    try:
        return ReportSource.model_validate(stored)
    except ValidationError as error:
        at = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"])
        reason = f"at {one_line(at)}" if at else "its parts do not fit"
        raise DataError(
            f"cannot be used ({reason})",
            where=str(path),
            hint="was it written by another release?",
        ) from None
    except (ValueError, KeyError):
        raise DataError("cannot be used", where=str(path), hint="make it anew") from None
