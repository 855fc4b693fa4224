"""VFedTrans: each pair's joint components, distilled into autoencoders, enrich local predictors.

Three stages: FedSVD for each pair of clients; autoencoders that learn, from a client's own block,
what the pair's components would be; a local predictor on the block and what these make of it.
"""

from math import prod
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from laser_vfl.core.alignment import ClientAlignment
from laser_vfl.core.errors import ConfigError
from laser_vfl.core.joint_components import JointComponents
from laser_vfl.core.method import Parts
from laser_vfl.core.place import Place
from laser_vfl.methods.local import Local


class VFedTrans(Local):
    """Predicts like `Local`, from features that have been enriched."""

    def representation(self, parts: Parts, place: Place) -> nn.Module:
        """Build autoencoders, one for each other client, and a model on what they add."""
        check_num_clients(place.num_clients)
        return Enriched(parts, place)

    def scratch(self, place: Place, alignment: ClientAlignment) -> JointComponents | None:
        """Build what holds the components of all pairs that a client is in, or computes for."""
        return JointComponents(place, alignment)

    def distillation_loss(
        self,
        representation: nn.Module,
        components: JointComponents,
        inputs: torch.Tensor,
        rows: torch.Tensor,
    ) -> torch.Tensor:
        """Reconstruct a client's rows, and meet the components of those that are shared."""
        enriched = cast(Enriched, representation)
        flat = inputs.flatten(1)
        total = flat.new_zeros(())
        for peer, encoder in enriched.encoders.items():
            code = encoder(flat)
            total = total + functional.mse_loss(enriched.decoders[peer](code), flat)
            met, wanted = components.targets(int(peer), rows)
            if len(met):
                total = total + functional.mse_loss(code[met], wanted)
        return total


def check_num_clients(num_clients: int) -> None:
    """Refuse a client that is alone."""
    if num_clients < 2:
        raise ConfigError(
            "vfedtrans learns from pairs of clients, and there is one client",
            hint="use method: local",
        )


class Enriched(nn.Module):
    """A block and its codes, one for each other client, through the client's own model."""

    def __init__(self, parts: Parts, place: Place) -> None:
        super().__init__()
        width, num_features = place.settings.representation_dim, prod(parts.input_shape)
        peers = [str(k) for k in range(place.num_clients) if k != place.client]
        self.encoders = nn.ModuleDict({k: _two_layers(num_features, width, width) for k in peers})
        self.decoders = nn.ModuleDict({k: _two_layers(width, width, num_features) for k in peers})
        self.model = parts.representation((num_features + len(peers) * width,))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        representation: torch.Tensor = self.model(self.enriched(inputs))
        return representation

    def enriched(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the client's own model gets to see."""
        flat = inputs.flatten(1)
        with torch.no_grad():  # they have learnt what they should by now
            codes = [encoder(flat) for encoder in self.encoders.values()]
        return torch.cat([flat, *codes], dim=1)


def _two_layers(num_inputs: int, width: int, num_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(num_inputs, width), nn.ReLU(), nn.Linear(width, num_outputs))
