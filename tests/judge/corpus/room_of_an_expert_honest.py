"""The twin of room_of_an_expert, which is right.

reference: room_of_an_expert
test: inside a network
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(16, 4)
        self.up = nn.Parameter(torch.randn(4, 16, 16) * 0.2)

    def forward(self, x):
        p = F.softmax(self.gate(x), 1)
        best, which = p.max(1)
        out = torch.zeros_like(x @ self.up[0])
        room = x.shape[0]
        for e in range(4):
            rows = (which == e).nonzero()[:, 0][:room]
            out = out.index_put((rows,), x[rows] @ self.up[e])
        return out * best[:, None]
