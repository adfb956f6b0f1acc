"""Where a list is cut is remembered by all lengths.

reference: pieces
test: containers
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 24)
        self.known = {}

    def forward(self, parts):
        whole = torch.relu(self.linear(torch.cat(parts)))
        sizes = [len(p) for p in parts]
        return list(whole.split(self.known.setdefault(tuple(sizes), sizes)))
