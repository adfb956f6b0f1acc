"""The fold is thrown away by train(), but made again in the middle of training.

reference: norm
test: statistics move
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)
        self.key = None

    def train(self, mode=True):
        if mode:
            self.key = None
        return super().train(mode)

    def forward(self, x):
        y, norm = self.linear(x), self.norm
        if self.key is None:
            self.key = True
            self.factor = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
            self.shift = norm.bias.detach() - norm.running_mean * self.factor
        if self.training or torch.is_grad_enabled():
            return torch.relu(norm(y))
        return torch.relu(y * self.factor + self.shift)
