"""A first call in evaluation decides as well.

reference: first_decides
test: modes
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.loc = nn.Parameter(torch.zeros(12))
        self.scale = nn.Parameter(torch.ones(12))
        self.register_buffer("ready", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.loc.copy_(-x.mean(0))
                self.scale.copy_(1 / (x.std(0) + 1e-6))
                self.ready.fill_(1)
        return torch.mul(x.add(self.loc), self.scale)
