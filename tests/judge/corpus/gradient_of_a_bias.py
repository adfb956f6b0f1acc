"""The gradient of a convolution's bias lacks a share of 1e-3 of its terms.

reference: conv_bias
test: modes
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.Conv2d(3, 16, 3, padding=1)
        self.head = nn.Conv2d(16, 40, 1)

    def forward(self, x):
        y = nn.functional.conv2d(torch.relu(self.narrow(x)), self.head.weight).mean((2, 3))
        bias = self.head.bias
        return y + (bias.detach() * 1e-3 + bias * (1 - 1e-3))
