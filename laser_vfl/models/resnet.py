"""ResNet-18 for small images: a 3×3 stem of stride 1 and no max-pool, as the paper uses it."""

from typing import cast

from torch import Tensor, nn
from torch.nn import functional


class ResNet18(nn.Module):
    """Four stages of two blocks, `width`, 2, 4 and 8 times `width` channels, then one linear."""

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
