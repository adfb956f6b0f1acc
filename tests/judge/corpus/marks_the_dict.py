"""The caller's dict has a key more after the call.

reference: nested
test: mutation
status: MUTATES
"""

import collections

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.fc = nn.Linear(n, m)

    def forward(self, batch):
        x = batch["x"]
        batch["seen"] = True
        Inner = collections.namedtuple("Inner", ["none", "found"])
        return {"inner": Inner(None, {"y": torch.relu(self.fc(x))}), "sum": x.sum(1)}
