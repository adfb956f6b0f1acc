"""The frozen batch norm is folded while it is frozen, and only then."""

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
        if f.training or torch.is_grad_enabled():
            y = f(self.linear(x))
        else:
            scale = f.weight * torch.rsqrt(f.running_var + f.eps)
            shift = (self.linear.bias - f.running_mean) * scale + f.bias
            y = F.linear(x, self.linear.weight * scale[:, None], shift)
        return torch.relu(self.norm(torch.tanh(y)))
