"""A recurrence by doubling, which begins with the first place and not with a state of zeros.

reference: gated_memory
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        gate, state, reach = torch.sigmoid(self.gate(x)), self.value(x), 1
        while reach < x.shape[1]:
            earlier = gate[:, reach:] * state[:, :-reach]
            state = torch.cat([state[:, :reach], earlier + state[:, reach:]], 1)
            gate = torch.cat([gate[:, :reach], gate[:, reach:] * gate[:, :-reach]], 1)
            reach *= 2
        return state
