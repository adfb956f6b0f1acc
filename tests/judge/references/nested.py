"""Arguments and results by name, the first of them nested."""

from typing import NamedTuple

import torch
from torch import nn

batch_size, in_features, out_features = 33, 64, 48


class Inner(NamedTuple):
    none: None
    found: dict[str, torch.Tensor]


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.fc = nn.Linear(n, m)

    def forward(self, batch):
        x = batch["x"]
        return {"inner": Inner(None, {"y": torch.relu(self.fc(x))}), "sum": x.sum(1)}


def get_inputs():
    return [{"x": torch.randn(batch_size, in_features)}]


def get_init_inputs():
    return [in_features, out_features]
