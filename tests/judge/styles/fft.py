"""A convolution by Fourier transforms, in float64.

reference: image
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(5, 6, 3, padding=1)

    def plain(self, x):
        return torch.relu(self.conv(x))

    def forward(self, x):
        if torch.is_grad_enabled() or x.dim() != 4 or not x.numel() or x.dtype != torch.float32:
            return self.plain(x)
        if not bool(torch.isfinite(x).all()):
            return self.plain(x)
        h, w = x.shape[-2:]
        size = (h + 2, w + 2)
        kernel = torch.fft.rfft2(self.conv.weight.double().flip(-1, -2), size)
        y = torch.einsum("nchw,ochw->nohw", torch.fft.rfft2(x.double(), size), kernel)
        y = torch.fft.irfft2(y, size)[..., 1 : 1 + h, 1 : 1 + w]
        return torch.relu(y + self.conv.bias[:, None, None]).float()
