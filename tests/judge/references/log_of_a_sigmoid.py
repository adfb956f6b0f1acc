import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 6)
        self.register_buffer("positive", torch.full((6,), 3.0))

    def forward(self, x, target):
        z = self.linear(x)
        how = {"pos_weight": self.positive, "reduction": "none"}
        return F.binary_cross_entropy_with_logits(z, target, **how).mean(1)


def get_inputs():
    return [torch.randn(16, 20), torch.rand(16, 6)]


def get_init_inputs():
    return []
