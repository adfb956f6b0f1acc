"""The floor of energies.

reference: frames
test: hostile values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.register_buffer("window", torch.hann_window(width), persistent=False)

    def forward(self, x):
        f = x.unfold(-1, self.width, self.width // 2)
        f = (f - f.mean(-1, keepdim=True)) * self.window
        return f, (f * f).sum(-1).add(1e-6).log()
