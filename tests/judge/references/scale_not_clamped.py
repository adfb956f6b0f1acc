import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(16, 8)
        self.text = nn.Linear(12, 8)
        self.scale = nn.Parameter(torch.tensor(2.6))

    def forward(self, a, b):
        p, q = F.normalize(self.image(a), dim=-1), F.normalize(self.text(b), dim=-1)
        return self.scale.exp().clamp(max=100.0) * p @ q.T


def get_inputs():
    return [torch.randn(8, 16), torch.randn(8, 12)]


def get_init_inputs():
    return []
