"""A copy of the dict is used up.

reference: nested
test: mutation
"""

import collections

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.fc = nn.Linear(n, m)

    def forward(self, batch):
        x = dict(batch).pop("x")
        Inner = collections.namedtuple("Inner", ["none", "found"])
        return {"inner": Inner(None, {"y": torch.relu(self.fc(x))}), "sum": x.sum(1)}
