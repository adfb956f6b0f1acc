import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 24)

    def forward(self, x):
        z = torch.relu(self.linear(x)) - 0.25
        least = z.topk(8, -1).values[..., -1:]
        return torch.softmax(z.masked_fill(z < least, -1e30), -1)


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
