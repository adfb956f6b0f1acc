import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(64, 48)
        self.b = nn.Linear(48, 8)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.gelu(self.a(x))
            return F.softmax(self.b(y), -1).float()


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []
