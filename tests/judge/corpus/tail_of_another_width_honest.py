"""The twin of tail_of_another_width: what is left is computed, too.

reference: gains
test: constructor
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(width) + 0.5)
        self.shift = nn.Parameter(torch.randn(width))

    def forward(self, x):
        flat = (x * self.gain + self.shift).reshape(-1)
        whole = len(flat) // 8 * 8
        return torch.cat((torch.tanh(flat[:whole]), torch.tanh(flat[whole:]))).view(x.shape)
