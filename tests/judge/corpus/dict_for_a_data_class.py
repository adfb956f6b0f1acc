"""A dict in the place of an object of a data class.

reference: fields
test: plain output
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.inner = nn.Linear(n, m)
        self.head = nn.Linear(m, 5)

    def forward(self, x):
        h = torch.tanh(self.inner(x))
        return {"logits": self.head(h), "hidden": [h, h * h], "loss": None}
