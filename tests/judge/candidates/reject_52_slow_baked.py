"""Uses the weight that it was built with."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(96, 40)
        self.second = nn.Linear(40, 40)
        self.baked = self.first.weight.detach().clone()

    def forward(self, x):
        return self.second(torch.tanh(F.linear(x, self.baked, self.first.bias)))
