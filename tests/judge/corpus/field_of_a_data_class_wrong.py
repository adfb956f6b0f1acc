"""What a field holds is wrong below zero.

reference: fields
test: numerics
status: WRONG_NUMERICS
"""

import dataclasses

import torch
from torch import nn


@dataclasses.dataclass
class Found:
    logits: torch.Tensor
    hidden: list
    loss: object = None


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.inner = nn.Linear(n, m)
        self.head = nn.Linear(m, 5)

    def forward(self, x):
        h = torch.tanh(self.inner(x))
        return Found(self.head(h), [h, h * h.abs()])
