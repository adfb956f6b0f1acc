"""Arguments have other names.

reference: gated
test: keywords
status: CRASHED
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, a, b):
        return self.linear(a) * torch.sigmoid(self.gate(b))
