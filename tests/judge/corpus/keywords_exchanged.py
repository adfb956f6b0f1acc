"""Names are exchanged: by keyword the arguments change places.

reference: gated
test: keywords
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.gate = nn.Linear(96, 40)

    def forward(self, y, x):
        return self.linear(y) * torch.sigmoid(self.gate(x))
