import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(24, 16, bias=False)

    def forward(self, x, y):
        return F.cosine_similarity(self.a(x), self.a(y), dim=1, eps=1e-3)


def get_inputs():
    return [torch.randn(16, 24), torch.randn(16, 24)]


def get_init_inputs():
    return []
