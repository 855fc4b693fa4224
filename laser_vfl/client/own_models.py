"""How this client's models are built: as the configuration names them, or given in Python."""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from laser_vfl.client.config import ModelConfig
from laser_vfl.core.errors import DataError, quoted
from laser_vfl.core.method import ModelParts
from laser_vfl.core.table_form import TableForm
from laser_vfl.core.table_rows import reads_block
from laser_vfl.data import Encoding, LabelEncoding
from laser_vfl.models import build_fusion, build_representation


@dataclass(frozen=True)
class OwnModels:
    """Modules that were given in Python; None where the configuration names one."""

    representation: nn.Module | None = None
    fusion: nn.Module | None = None

    def left_out_of(self, config: ModelConfig) -> dict[str, Any]:
        """Return what the configuration says of the models, and None where one was given here."""
        given = {"representation": self.representation, "fusion": self.fusion}
        return config.model_dump() | {
            name: None for name, model in given.items() if model is not None
        }


NO_MODELS = OwnModels()


def models_of_manifest(
    stored: Mapping[str, Any], config: ModelConfig, own: OwnModels, *, has_head: bool
) -> dict[str, Any]:
    """Return what a manifest says of the models, with code named by the configuration alone.

    A manifest is a file that anybody who can write to the state directory can change. Built-in
    models are taken from it. The name of a model of one's own has to be the configuration's, with
    the same options; otherwise the file could have any function of any package called.
    """
    trusted: dict[str, Any] = {"hidden": stored["hidden"]}
    configured = config.model_dump()
    for part in ("representation", "fusion") if has_head else ("representation",):
        name, options = stored[part], f"{part}_options"
        trusted |= {part: name, options: stored[options]}
        if getattr(own, part) is not None:
            continue
        if name is None:
            raise DataError(f"it was trained with a {part} given in Python; give it again")
        if not isinstance(name, str):
            raise DataError(f"its manifest names no {part}")
        if ":" not in name:
            continue
        if name != configured[part]:
            raise _not_configured(
                part, f"names the {part} {quoted(name)}, the configuration {configured[part]}"
            )
        if _as_json(stored[options]) != _as_json(configured[options]):
            raise _not_configured(
                part, f"has other options for the {part} {quoted(name)} than the configuration"
            )
        trusted[options] = configured[options]
    return trusted


def _not_configured(part: str, what: str) -> DataError:
    return DataError(
        f"its manifest {what}",
        hint=f"if you have changed model.{part} or its options since the training, put them back, "
        "or remove the link `model` to start without it and train again; if nobody has, somebody "
        "has changed the manifest: restore it",
    )


def _as_json(options: object) -> str:
    """Return options as a manifest keeps them; 1, 1.0 and true differ."""
    return json.dumps(options, sort_keys=True)


def model_parts(
    model: Mapping[str, Any],
    own: OwnModels,
    *,
    width: int,
    encoding: Encoding,
    labels: LabelEncoding | None,
) -> ModelParts:
    """Return how to build the models of a client.

    `model` is its configuration of models, or what a manifest has kept of it.
    """
    num_outputs = labels.num_outputs if labels else 0

    def representation(shape: tuple[int, ...], form: TableForm | None) -> nn.Module:
        if own.representation is not None:
            return reads_block(copy.deepcopy(own.representation), form)
        return build_representation(
            model["representation"],
            input_shape=shape,
            representation_dim=width,
            hidden=model["hidden"],
            options=model["representation_options"],
            form=form,
        )

    def fusion() -> nn.Module:
        if own.fusion is not None:
            return copy.deepcopy(own.fusion)
        return build_fusion(
            model["fusion"],
            representation_dim=width,
            num_outputs=num_outputs,
            options=model["fusion_options"],
        )

    classes = labels.classes if labels else ()
    shape, form = encoding.input_shape, encoding.form
    return ModelParts(representation, fusion, shape, num_outputs, classes, form)
