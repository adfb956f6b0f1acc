"""Training gives more than evaluation."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(40, 24)
        self.head, self.side = nn.Linear(24, 10), nn.Linear(24, 10)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        y = torch.relu(self.body(x))
        if self.training:
            return self.head(self.dropout(y)), self.side(y)
        return self.head(y)


def get_inputs():
    return [torch.randn(18, 40)]
