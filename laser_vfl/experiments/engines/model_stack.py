"""Models of the same layers, trained as one: a row of one matrix has all parameters of a model."""

from collections.abc import Iterator, Sequence
from math import prod

import torch
from torch import nn

from laser_vfl.core.errors import ConfigError
from laser_vfl.core.training.learner import OptimizerSettings, build_optimizer
from laser_vfl.methods.ensemble import Ballot

Gradients = list[tuple[int, torch.Tensor]]
"""By the place of a model in its stack."""


class Stack:
    """m models and their optimisers, each of which takes a step only when its model is used."""

    def __init__(self, models: Sequence[nn.Module], optimizer: OptimizerSettings) -> None:
        self._parameters = [list(model.parameters()) for model in models]
        self._layers = _layers(models)
        self._shapes = [parameter.shape for parameter in self._parameters[0]]
        self._sizes = [prod(shape) for shape in self._shapes]
        self._all_mp = torch.stack([_flat(parameters) for parameters in self._parameters])
        self._rows = list(self._all_mp)
        self._optimizer = build_optimizer(optimizer, self._rows, fused=True)
        if optimizer.name == "sgd" and optimizer.momentum:  # torch wants all buffers or none
            for row_p in self._rows:
                self._optimizer.state[row_p]["momentum_buffer"] = torch.zeros_like(row_p)

    def run(self, inputs_mbf: torch.Tensor, used: Sequence[int]) -> torch.Tensor:
        """Return the outputs of some of the models, each on its own batch, ready for `update`."""
        parts = self._take(used)
        outputs_mbf = inputs_mbf
        for kind in self._layers:
            if kind is nn.ReLU:
                outputs_mbf = outputs_mbf.relu()
                continue
            weights_mof, biases_mo = next(parts), next(parts)
            outputs_mbf = torch.baddbmm(biases_mo[:, None], outputs_mbf, weights_mof.mT)
        return outputs_mbf

    @property
    def is_linear(self) -> bool:
        """Whether each model is one linear layer."""
        return self._layers == [nn.Linear]

    def run_on_averages(
        self, averaging_bmtk: torch.Tensor, rows_kbf: torch.Tensor, used: Sequence[int]
    ) -> torch.Tensor:
        """Return what linear models make of averages (m, b, t, o): the averages of what they make.

        These are far smaller than averages of what they are given.
        """
        weights_mof, biases_mo = self._take(used)
        num_rows, num_models, _, num_blocks = averaging_bmtk.shape
        made_kbmo = torch.mm(rows_kbf.flatten(0, 1), weights_mof.flatten(0, 1).mT)
        made_bmko = made_kbmo.view(num_blocks, num_rows, num_models, -1).permute(1, 2, 0, 3)
        averages_bmto = torch.matmul(averaging_bmtk, made_bmko)
        return averages_bmto.transpose(0, 1) + biases_mo[:, None, None]

    def _take(self, used: Sequence[int]) -> Iterator[torch.Tensor]:
        """Return the parameters of some models, which `update` will change."""
        self._used = used
        everybody = len(used) == len(self._all_mp)
        now_mp = self._all_mp if everybody else self._all_mp[torch.tensor(used)]
        self._leaf_mp = now_mp.detach().requires_grad_()
        parts = torch.split_with_sizes(self._leaf_mp, self._sizes, dim=1)
        return (part.view(-1, *shape) for part, shape in zip(parts, self._shapes, strict=True))

    def gradients(self) -> Gradients:
        """Return those of what was run last, for an optimiser step now or later."""
        assert self._leaf_mp.grad is not None
        return list(zip(self._used, self._leaf_mp.grad, strict=True))

    def update(self, gradients: Gradients, rate: float) -> None:
        """Take an optimiser step."""
        for place, gradient_p in gradients:
            self._rows[place].grad = gradient_p
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    @property
    def is_finite(self) -> bool:
        """Whether all parameters are numbers."""
        return bool(self._all_mp.isfinite().all())

    @torch.no_grad()
    def write_back(self) -> None:
        """Give the models the parameters that they have come to."""
        for parameters, row_p in zip(self._parameters, self._all_mp, strict=True):
            for parameter, part in zip(
                parameters, torch.split_with_sizes(row_p, self._sizes), strict=True
            ):
                parameter.copy_(part.view_as(parameter))


def _flat(parameters: Sequence[nn.Parameter]) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in parameters])


def _layers(models: Sequence[nn.Module]) -> list[type[nn.Module]]:
    """Return the kinds of the models' layers, which have to be those of an MLP, all alike."""
    chains = [list(_chain(model)) for model in models]
    forms = {
        tuple((type(layer), *(p.shape for p in layer.parameters())) for layer in chain)
        for chain in chains
    }
    if len(forms) > 1 or not all(_is_stacked(layer) for chain in chains for layer in chain):
        raise ConfigError(
            "models are stacked only if they are MLPs of equal widths",
            hint="use --engine oracle",
        )
    return [type(layer) for layer in chains[0] if not isinstance(layer, nn.Flatten)]


def _chain(model: nn.Module) -> Iterator[nn.Module]:
    """Yield what a model does to its inputs, one after the other."""
    if isinstance(model, Ballot):
        yield from _chain(model.head)
    elif type(model) is nn.Sequential:
        for part in model:
            yield from _chain(part)
    else:
        yield model


def _is_stacked(layer: nn.Module) -> bool:
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return type(layer) is nn.ReLU or (type(layer) is nn.Linear and layer.bias is not None)
