"""This client's models, built from its configuration and its block, and checked against the run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from laser_vfl.client.config import ClientConfig
from laser_vfl.client.own_models import NO_MODELS, OwnModels, model_parts
from laser_vfl.client.tables.block import Block, placed
from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import MismatchError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import Method, ModelParts
from laser_vfl.core.privacy.keystream import subkey
from laser_vfl.core.privacy.noise import Release
from laser_vfl.core.subsets import has, mask_of
from laser_vfl.core.table_form import TableForm
from laser_vfl.core.training.head_start import started
from laser_vfl.core.training.layer_randomness import borrowed_generator, initial_randomness
from laser_vfl.core.training.learner import Learner, OptimizerSettings
from laser_vfl.data import Encoding, LabelEncoding
from laser_vfl.methods.profiles import DEFAULT_METHOD
from laser_vfl.methods.registry import method_named
from laser_vfl.methods.training_settings import TrainingSettings
from laser_vfl.models import OptionError, check_fusion, check_representation, check_rows_apart


def check_noise(config: ClientConfig, block: Block, own: OwnModels = NO_MODELS) -> None:
    """Refuse noise that batch norm makes worthless, as far as the model can be known yet.

    A factory of the user's own may need the federation's width; `build_models` checks its model.
    """
    model, width = config.model, config.representation_dim
    if own.representation is None and ":" in model.representation and width is None:
        return
    if config.privacy.noise:
        with borrowed_generator(), placed(config.where("model.representation")):
            parts = _parts(config, block.encoding, block.labels, width or 1, own)
            representation = parts.of_block()
        _check_noise(config, representation)


def check_models(config: ClientConfig, encoding: Encoding, labels: LabelEncoding | None) -> None:
    """Build the models as a run does, and refuse what it would refuse.

    A factory of the user's own is left out while the federation's width is not known.
    """
    model, width = config.model, config.representation_dim
    parts = _parts(config, encoding, labels, width or 1, NO_MODELS)
    parts = _checked(config, parts, width or 1)
    with borrowed_generator():
        if ":" not in model.representation or width is not None:
            parts.of_block()
        if labels is not None and (":" not in model.fusion or width is not None):
            parts.fusion()


def build_models(
    config: ClientConfig, block: Block, context: FederationContext, own: OwnModels = NO_MODELS
) -> tuple[nn.Module, nn.Module | None]:
    """Build this client's representation model and head, and check that they fit the federation."""
    settings = context.settings
    width = settings.representation_dim
    if config.representation_dim not in (None, width):
        raise MismatchError(
            f"this client expects {config.representation_dim}, the federation has {width}",
            where=config.where("representation_dim"),
            hint="agree on one width with the coordinator",
        )
    method = method_named(settings.method)
    parts = _checked(config, _parts(config, block.encoding, block.labels, width, own), width)
    _check_release(config, method)
    with initial_randomness(settings.seed, context.client):
        representation = method.models.representation(parts, context)
        if not has(context.heads, context.client):
            return representation, None
        if own.fusion is None and ":" not in config.model.fusion:
            train = block.train
            fusion = started(parts.fusion, block.label_noise, train.targets, train.label_weights)
            parts = replace(parts, fusion=fusion)
        with _placed_model(config, "fusion"):
            return representation, method.models.fusion(parts, context)


def build_learner(
    config: ClientConfig,
    block: Block,
    settings: TrainingSettings,
    roster: Sequence[str],
    heads: Sequence[str],
    device: torch.device,
    own: OwnModels = NO_MODELS,
    *,
    alignment: ClientAlignment | None = None,
    own_key: bytes = b"",
) -> Learner:
    """Build this client's learner for a run, of which it is known who has labels (`heads`).

    `alignment` is that of the training table. `own_key` is this client's secret; only noise is
    drawn from it.
    """
    method = method_named(settings.method)
    context = FederationContext(
        client=roster.index(config.name),
        num_clients=len(roster),
        heads=method.blocks.heads(mask_of(roster.index(name) for name in heads)),
        settings=settings,
        groups=alignment.groups if alignment else (),
    )
    representation, fusion = build_models(config, block, context, own)
    return Learner(
        context,
        representation,
        fusion,
        task=block.task,
        optimizer=OptimizerSettings(**config.optimizer.model_dump()),
        device=device,
        precision=config.precision,
        release=release_of(config.privacy.clip, config.privacy.noise, own_key),
        label_noise=block.label_noise,
        method=method,
        scratch=method.preparation.state(context, alignment, block.encoding.form)
        if alignment
        else None,
    )


def release_of(clip: float | None, noise: float, own_key: bytes) -> Release | None:
    """Return how representations leave this client; None if unchanged."""
    if clip is None:
        return None
    return Release(clip, noise, subkey(own_key, b"noise") if own_key else b"")


def _parts(
    config: ClientConfig,
    encoding: Encoding,
    labels: LabelEncoding | None,
    width: int,
    own: OwnModels,
) -> ModelParts:
    """Return how to build what the configuration names."""
    model = config.model.model_dump()
    return model_parts(model, own, width=width, encoding=encoding, labels=labels)


@contextmanager
def _placed_model(config: ClientConfig, part: str) -> Iterator[None]:
    """Say which key an error in here is about: the options of a model, or its choice."""
    with placed(config.where(f"model.{part}")):
        try:
            yield
        except OptionError as error:
            error.where = error.where or config.where(f"model.{part}_options")
            raise


def _checked(config: ClientConfig, parts: ModelParts, width: int) -> ModelParts:
    """Return these parts with checks: each model is checked when it is built."""

    def representation(input_shape: tuple[int, ...], form: TableForm | None) -> nn.Module:
        with _placed_model(config, "representation"):
            built = parts.representation(input_shape, form)
            check_representation(built, (form.width,) if form else input_shape, width)
        _check_noise(config, built)
        return built

    def fusion() -> nn.Module:
        with _placed_model(config, "fusion"):
            built = parts.fusion()
            check_fusion(built, width, parts.num_outputs)
        return built

    return replace(parts, representation=representation, fusion=fusion)


def _check_release(config: ClientConfig, method: Method) -> None:
    """Refuse bounds and noise for what is no representation."""
    if config.privacy.clip is not None and not method.releases_representations:
        raise MismatchError(
            "bounds and noise are for methods in which a client lets out one representation",
            where=config.where("privacy.clip"),
            hint="leave `privacy` out, or agree with the coordinator on "
            f"training.method: {DEFAULT_METHOD}",
        )


def _check_noise(config: ClientConfig, representation: nn.Module) -> None:
    if config.privacy.noise:
        with placed(config.where("privacy.noise")):
            check_rows_apart(representation)
