"""A loss of each label, of targets that are zeros and ones."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 6)

    def forward(self, x, target):
        return F.binary_cross_entropy_with_logits(self.linear(x), target, reduction="none")


def get_inputs():
    return [torch.randn(16, 20), (torch.rand(16, 6) > 0.5).float()]


def get_init_inputs():
    return []
