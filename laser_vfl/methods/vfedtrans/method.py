"""VFedTrans: each pair's joint components, distilled into autoencoders, enrich local predictors.

Three stages: FedSVD for each pair of clients; autoencoders that learn, from a client's own block,
what the pair's components would be; a local predictor on the block and what these make of it.
"""

from collections.abc import Sequence
from math import prod
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from laser_vfl.core.alignment import ClientAlignment, Group
from laser_vfl.core.errors import ConfigError
from laser_vfl.core.federation_context import FederationContext
from laser_vfl.core.method import ModelParts, ModelUse
from laser_vfl.core.preparation import Preparation, PreparationState
from laser_vfl.core.settings import AlgorithmSettings
from laser_vfl.core.table_form import TableForm
from laser_vfl.core.table_rows import flat_rows
from laser_vfl.methods.local import Local
from laser_vfl.methods.profiles import PROFILES
from laser_vfl.methods.vfedtrans.joint_components import JointComponents
from laser_vfl.methods.vfedtrans.joint_svd import Chunk, chunks_of

_PROFILE = PROFILES["vfedtrans"]


class EnrichedModels(ModelUse):
    """A client's model sees its block and what autoencoders add to it."""

    def representation(self, parts: ModelParts, context: FederationContext) -> nn.Module:
        """Build autoencoders, one for each other client, and a model on what they add."""
        if refusal := _PROFILE.refusal(context.num_clients):
            why, hint = refusal
            raise ConfigError(why, hint=hint)
        return Enriched(parts, context)


class JointSvdAndDistillation(Preparation):
    """A joint SVD of each pair of clients, then autoencoders that learn its components."""

    exchange_stage = "joint svd"
    local_stage = "distillation"

    def exchanges(
        self, settings: AlgorithmSettings, groups: Sequence[Group], num_clients: int
    ) -> Sequence[Chunk]:
        """Return all chunks of all pairs."""
        return list(chunks_of(groups, num_clients, settings.batch_size))

    def local_epochs(self, settings: AlgorithmSettings) -> int:
        """Return the epochs of distillation."""
        return settings.distillation_epochs

    def state(
        self,
        context: FederationContext,
        alignment: ClientAlignment,
        form: TableForm | None = None,
    ) -> JointComponents:
        """Build what holds the components of all pairs that a client is in, or computes for."""
        return JointComponents(context, alignment, form)

    def local_loss(
        self,
        representation: nn.Module,
        state: PreparationState,
        inputs: torch.Tensor,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """Reconstruct a client's rows, and meet the components of those that are shared."""
        enriched, components = cast(Enriched, representation), cast(JointComponents, state)
        flat = enriched.flat(inputs)
        total = flat.new_zeros(())
        for peer, encoder in enriched.encoders.items():
            code = encoder(flat)
            total = total + functional.mse_loss(enriched.decoders[peer](code), flat)
            met, wanted = components.targets(int(peer), rows)
            if len(met):
                total = total + functional.mse_loss(code[met], wanted)
        return total


class VFedTrans(Local):
    """Predicts like `Local`, from features that have been enriched."""

    models = EnrichedModels()
    preparation = JointSvdAndDistillation()


class Enriched(nn.Module):
    """A block and its codes, one for each other client, through the client's own model."""

    def __init__(self, parts: ModelParts, context: FederationContext) -> None:
        super().__init__()
        width, num_features = context.settings.representation_dim, prod(parts.input_shape)
        peers = [str(k) for k in range(context.num_clients) if k != context.client]
        self.encoders = nn.ModuleDict({k: _two_layers(num_features, width, width) for k in peers})
        self.decoders = nn.ModuleDict({k: _two_layers(width, width, num_features) for k in peers})
        self._form = parts.form
        self.model = parts.representation((num_features + len(peers) * width,), None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        representation: torch.Tensor = self.model(self.enriched(inputs))
        return representation

    def enriched(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the client's own model gets to see."""
        flat = self.flat(inputs)
        with torch.no_grad():  # they have learnt what they should by now
            codes = [encoder(flat) for encoder in self.encoders.values()]
        return torch.cat([flat, *codes], dim=1)

    def flat(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return rows of the block as vectors of numbers."""
        return flat_rows(inputs, self._form).flatten(1)


def _two_layers(num_inputs: int, width: int, num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(num_inputs, width), nn.ReLU(), nn.Linear(width, num_outputs))
