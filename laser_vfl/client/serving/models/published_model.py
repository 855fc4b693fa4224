"""A trained model as it is served: read from the state directory, complete in itself."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.model_building import release_of
from laser_vfl.client.own_models import OwnModels, model_parts, models_of_manifest
from laser_vfl.client.storage.state_directory import StateDirectory, unusable
from laser_vfl.client.tables.digest_index import Digests
from laser_vfl.core.errors import DataError, LaserError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import Method
from laser_vfl.core.privacy.noise import Release
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.table_rows import flat_rows
from laser_vfl.core.training.gradients import WIRE_DTYPES, columns_at
from laser_vfl.core.training.layer_randomness import borrowed_generator
from laser_vfl.data import Encoding, LabelEncoding
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings

ROWS_AT_ONCE = 1024

SCORE_NAMES = {"multiclass": "accuracy", "binary": "accuracy", "regression": "r2"}
"""The one score of each task that is told with a prediction."""


@dataclass(frozen=True)
class PublishedModel:
    """The models of one run at one client, and all that is needed to predict with them."""

    run: str
    me: int
    roster: tuple[str, ...]
    heads: tuple[str, ...]
    addresses: dict[str, str]
    """Where the members of the run were; only they have a model of it."""
    settings: TrainingSettings
    num_steps: int
    trained_at: float
    encoding: Encoding
    labels: LabelEncoding | None
    score: float | None
    scores: dict[int, float | None]
    """What to expect of each subset of blocks that was evaluated, by its mask.

    Both this and `score` are left out if labels are private, because every caller is told them.
    """
    models: nn.ModuleDict
    device: torch.device
    precision: str
    alignment: str
    """How ids were compared in its run: "ecdh" or "hmac"."""
    sha256: str = ""
    """Of its parameters."""
    release: Release | None = None
    """How representations leave this client: as in training, whatever is configured since."""

    @cached_property
    def method(self) -> Method:
        """How it was trained, and predicts."""
        return method_named(self.settings.method)

    @cached_property
    def context(self) -> FederationContext:
        """Where this client stands among those it was trained with."""
        return context_of(self.me, self.roster, self.heads, self.settings)

    @cached_property
    def _chance(self) -> torch.Generator:
        chance = torch.Generator()
        chance.seed()
        return chance

    @property
    def asked(self) -> list[str]:
        """The clients whose blocks predictions with it need."""
        asked = self.method.blocks.asks(self.context)
        return [name for k, name in enumerate(self.roster) if has(asked, k)]

    def is_asked_by(self, name: str) -> bool:
        """Tell whether another client needs this one's block when it predicts."""
        if name not in self.roster:  # without certificates, where a name says nothing
            return bool(self.method.blocks.asks(self.context))
        peer = context_of(self.roster.index(name), self.roster, self.heads, self.settings)
        return has(peer.heads, peer.client) and has(self.method.blocks.asks(peer), self.me)

    def concerning(self, own_nd: torch.Tensor, name: str) -> torch.Tensor:
        """Return those columns of representations that another client uses."""
        if name not in self.roster:
            return own_nd
        return columns_at(own_nd, self.method.models.columns(self.context, self.roster.index(name)))

    @property
    def wire_dtype(self) -> torch.dtype:
        """The type in which representations travel."""
        return WIRE_DTYPES[self.settings.serving_precision]

    @property
    def score_name(self) -> str:
        """What the scores are."""
        return SCORE_NAMES[self.labels.task] if self.labels else ""

    def represent(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return representations (n, d) in host memory."""
        task = self.labels.task if self.labels else "multiclass"
        rows_nd = self._run(
            lambda rows: self.method.prediction.embed(self.models, rows, self.context, task), inputs
        )
        return rows_nd if self.release is None else self.release.clipped(rows_nd)

    def released(
        self, own_nd: torch.Tensor, digests: Digests, inputs: torch.Tensor
    ) -> torch.Tensor:
        """Return what peers get of these representations of people with these features."""
        if self.release is None:
            return own_nd
        # One-hot as in earlier releases: the same person gets the same noise from the same model.
        flat = flat_rows(inputs, self.encoding.form)
        names = [
            b"".join((self.sha256.encode(), digest.tobytes(), features.numpy().tobytes()))
            for digest, features in zip(digests, flat, strict=True)
        ]
        return self.release.people(own_nd, names)

    def outputs(self, fused_nd: torch.Tensor) -> torch.Tensor:
        """Return the head's outputs for representations put together, in host memory."""
        assert self.labels is not None
        fusion, task = self.models["fusion"], self.labels.task
        return self._run(
            lambda rows: self.method.prediction.answers(fusion, rows, task, self._chance), fused_nd
        )

    def _run(
        self, module: Callable[[torch.Tensor], torch.Tensor], rows: torch.Tensor
    ) -> torch.Tensor:
        with torch.inference_mode(), self._autocast():
            if len(rows) <= ROWS_AT_ONCE:
                return _at_host(module(rows.to(self.device)))
            return torch.cat(
                [_at_host(module(p.to(self.device))) for p in torch.split(rows, ROWS_AT_ONCE)]
            )

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)


def load_published(
    config: ClientConfig, state: StateDirectory, run: str, own: OwnModels, device: torch.device
) -> PublishedModel:
    """Read the model of a run and check that it can be used here."""
    manifest, parameters = state.read_model(run)
    try:
        if manifest["run"] != run:
            raise DataError("its manifest is of another run")
        return _from_manifest(config, manifest, parameters, own, device, state.own_key())
    except DataError as error:
        raise unusable(state.path / "models" / run, error.message, error.hint) from None
    except LaserError as error:
        raise unusable(state.path / "models" / run, error.message) from None
    except Exception as error:
        first_line = next(iter(str(error).splitlines()), "")
        raise unusable(
            state.path / "models" / run, f"{type(error).__name__}: {first_line}"
        ) from None


def _from_manifest(
    config: ClientConfig,
    manifest: Mapping[str, Any],
    parameters: dict[str, torch.Tensor],
    own: OwnModels,
    device: torch.device,
    own_key: bytes,
) -> PublishedModel:
    if (manifest["federation"], manifest["client"]) != (config.federation, config.name):
        raise DataError(f"it is of {manifest['client']} in {manifest['federation']}")
    settings = TrainingSettings.model_validate(manifest["training"])
    encoding = Encoding.from_json(manifest["encoding"])
    labels = LabelEncoding.from_json(manifest["labels"]) if manifest["labels"] else None
    roster = tuple(map(str, manifest["roster"]))
    stored = {} if manifest["scores"] is None else {**manifest["scores"]}
    name = SCORE_NAMES[labels.task] if labels else ""
    privacy = manifest.get("privacy") or {}
    if not _tells_scores(config, privacy):
        stored = {}
    heads = tuple(map(str, manifest["heads"]))
    context = context_of(roster.index(config.name), roster, heads, settings)
    with borrowed_generator():
        model = models_of_manifest(
            manifest["model"], config.model, own, has_head=labels is not None
        )
        models = _build(model, encoding, labels, context, own)
    models.load_state_dict(parameters)
    return PublishedModel(
        run=str(manifest["run"]),
        me=roster.index(config.name),
        roster=roster,
        heads=heads,
        addresses={str(k): str(v) for k, v in manifest["addresses"].items()},
        settings=settings,
        num_steps=int(manifest["num_steps"]),
        trained_at=float(manifest["trained_at"]),
        encoding=encoding,
        labels=labels,
        score=stored.get("overall", {}).get(name),
        scores=_scores(stored.get("by_subset", {}), roster, name),
        models=models.to(device).eval(),
        device=device,
        precision=str(manifest["precision"]),
        alignment=str(manifest["alignment"]),
        sha256=str(manifest["sha256"]),
        release=release_of(privacy.get("clip"), privacy.get("noise", 0.0), own_key),
    )


def _tells_scores(config: ClientConfig, privacy: Mapping[str, Any]) -> bool:
    """Tell whether scores may leave: they come from true labels, which noise does not protect."""
    private = config.privacy.labels
    if private is not None:
        return private.tell_scores
    return "labels" not in privacy


def _at_host(outputs: torch.Tensor) -> torch.Tensor:
    return outputs.float().cpu()


def _scores(
    by_subset: Mapping[str, Mapping[str, Any]], roster: Sequence[str], name: str
) -> dict[int, float | None]:
    return {
        mask_of(roster.index(client) for client in subset.split(",")): entry[name]
        for subset, entry in by_subset.items()
    }


def _build(
    model: Mapping[str, Any],
    encoding: Encoding,
    labels: LabelEncoding | None,
    context: FederationContext,
    own: OwnModels,
) -> nn.ModuleDict:
    """Build modules to load parameters into; what they are initialised with does not matter."""
    width, method = context.settings.representation_dim, method_named(context.settings.method)
    parts = model_parts(model, own, width=width, encoding=encoding, labels=labels)
    models = nn.ModuleDict({"representation": method.models.representation(parts, context)})
    if labels is not None:
        models["fusion"] = method.models.fusion(parts, context)
    return models


def context_of(
    client: int, roster: Sequence[str], heads: Sequence[str], settings: TrainingSettings
) -> FederationContext:
    """Return where a client stands among those that a model was trained with."""
    return FederationContext(
        client, len(roster), mask_of(roster.index(name) for name in heads), settings
    )
