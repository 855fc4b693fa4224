"""The built-in models: MLP for tables, LSTM for sequences, ResNet-18 for small images."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional


def mlp(widths: Sequence[int], *, dropout: float = 0.0) -> nn.Sequential:
    """Return linear layers from each width to the next, with ReLU and dropout between them."""
    *inner, last = pairwise(widths)
    layers: list[nn.Module] = []
    for width, next_width in inner:
        layers += [nn.Linear(width, next_width), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*layers, nn.Linear(*last))


def flat_mlp(input_shape: Sequence[int], hidden: Sequence[int], output: int) -> nn.Sequential:
    """Return an MLP on rows of any shape, which it flattens."""
    return nn.Sequential(nn.Flatten(), *mlp([math.prod(input_shape), *hidden, output]))


class Lstm(nn.Module):
    """Each step is embedded, an LSTM reads the steps, its last state becomes the representation."""

    def __init__(self, num_features: int, representation_dim: int, *, width: int, layers: int):
        super().__init__()
        self.embedding = nn.Linear(num_features, width)
        self.lstm = nn.LSTM(width, width, num_layers=layers, batch_first=True)
        self.output = nn.Linear(width, representation_dim)

    def forward(self, rows_btf: Tensor) -> Tensor:
        _, (last_state_lbw, _) = self.lstm(self.embedding(rows_btf))
        return cast(Tensor, self.output(last_state_lbw[-1]))


class ResNet18(nn.Module):
    """Four stages of two blocks, `width`, 2, 4 and 8 times `width` channels, then one linear.

    As in the paper, the stem for small images is 3×3 with stride 1, and there is no max-pool.
    """

    def __init__(
        self, num_channels: int, representation_dim: int, *, width: int, stem_padding: int
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(num_channels, width, 3, padding=stem_padding, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
        )
        self.stages = nn.Sequential(
            *_stage(width, width, stride=1),
            *_stage(width, 2 * width, stride=2),
            *_stage(2 * width, 4 * width, stride=2),
            *_stage(4 * width, 8 * width, stride=2),
        )
        self.output = nn.Linear(8 * width, representation_dim)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images_bchw: Tensor) -> Tensor:
        maps_bchw = self.stages(self.stem(images_bchw))
        return cast(Tensor, self.output(maps_bchw.mean(dim=(2, 3))))


class _Residual(nn.Module):
    """Two 3×3 convolutions around a shortcut, which is a 1×1 convolution where shapes differ."""

    def __init__(self, in_channels: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(in_channels, channels, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels),
            )

    def forward(self, maps_bchw: Tensor) -> Tensor:
        inner = functional.relu(self.first_norm(self.first(maps_bchw)), inplace=True)
        inner = self.second_norm(self.second(inner))
        return functional.relu(inner + self.shortcut(maps_bchw))


def _stage(in_channels: int, channels: int, *, stride: int) -> list[nn.Module]:
    return [_Residual(in_channels, channels, stride), _Residual(channels, channels, 1)]


class RandomShift(nn.Module):
    """Moves each image by up to `padding` pixels each way, and mirrors it or not, by chance.

    An organisation can do this to its own block, in training.
    """

    def __init__(self, padding: int) -> None:
        super().__init__()
        self.padding = padding

    def forward(self, images_bchw: Tensor) -> Tensor:
        if not self.training:
            return images_bchw
        num, _, height, width = images_bchw.shape
        device, span = images_bchw.device, 2 * self.padding + 1
        padded = functional.pad(images_bchw, [self.padding] * 4)
        down, right = torch.randint(span, (2, num, 1), device=device)
        rows_bh = down + torch.arange(height, device=device)
        columns_bw = right + torch.arange(width, device=device)
        is_mirrored = torch.rand(num, 1, device=device) < 0.5
        columns_bw = torch.where(is_mirrored, columns_bw.flip(1), columns_bw)
        which_b = torch.arange(num, device=device)[:, None, None]
        moved_bhwc = padded[which_b, :, rows_bh[:, :, None], columns_bw[:, None, :]]
        return moved_bhwc.permute(0, 3, 1, 2).contiguous()
