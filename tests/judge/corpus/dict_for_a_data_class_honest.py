"""Another data class with these fields.

reference: fields
test: plain output
"""

import dataclasses

import torch
from torch import nn


@dataclasses.dataclass(frozen=True)
class Outputs:
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
        return Outputs(self.head(h), [h, h.square()])
