"""The batch norm that the reference builds frozen stays so, whatever mode is asked for."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 40)
        self.frozen, self.norm = nn.BatchNorm1d(40), nn.BatchNorm1d(40)
        self.frozen.eval()

    def forward(self, x):
        f = self.frozen
        y = F.batch_norm(self.linear(x), f.running_mean, f.running_var, f.weight, f.bias)
        return torch.relu(self.norm(torch.tanh(y)))
