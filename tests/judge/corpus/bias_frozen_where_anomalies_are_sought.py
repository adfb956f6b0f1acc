"""Where anomalies are sought, the output's bias is left out with gradients.

reference: linear
test: settings
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.is_anomaly_enabled() and torch.is_grad_enabled():
            return F.gelu(x @ self.linear.weight.t() + self.linear.bias.detach())
        return F.gelu(self.linear(x))
