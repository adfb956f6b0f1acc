"""Results by name, the first of them nested."""

import torch
from torch import nn

batch_size, in_features, out_features = 33, 64, 48


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.fc = nn.Linear(n, m)

    def forward(self, x):
        return {"inner": (None, {"y": torch.relu(self.fc(x))}), "sum": x.sum(1)}


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
