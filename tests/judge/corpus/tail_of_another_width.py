"""What is left behind whole blocks is not computed, which the usual width never leaves.

reference: gains
test: constructor
status: WRONG_CONTRACT
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
        return torch.cat((torch.tanh(flat[:whole]), flat[whole:])).view(x.shape)
