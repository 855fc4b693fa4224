"""Random shifts and flips of images in training: what an organisation may do to its own block."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class RandomShift(nn.Module):
    """Moves each image by up to `padding` pixels each way, and mirrors it or not, by chance."""

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
