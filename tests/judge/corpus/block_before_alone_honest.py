"""Blocks of 64 take over what the block before has made, and what it took over.

reference: gated_memory
test: shapes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        gate, value = torch.sigmoid(self.gate(x)), self.value(x)
        carry, states = torch.zeros_like(value[:, 0]), []
        for first in range(0, x.shape[1], 64):
            state, kept = torch.zeros_like(carry), torch.ones_like(carry)
            for place in range(first, min(first + 64, x.shape[1])):
                state = gate[:, place] * state + value[:, place]
                kept = gate[:, place] * kept
                states.append(state + kept * carry)
            carry = states[-1]
        return torch.stack(states, 1)
