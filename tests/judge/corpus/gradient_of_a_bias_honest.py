"""The gradient of a convolution's bias is the library's, by however many threads.

reference: conv_bias
test: modes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.narrow = nn.Conv2d(3, 16, 3, padding=1)
        self.head = nn.Conv2d(16, 40, 1)

    def forward(self, x):
        return self.head(torch.relu(self.narrow(x))).mean((2, 3))
