import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        a = torch.sigmoid(self.rate)
        h, found = torch.zeros_like(x[:, 0]), []
        for i in range(x.shape[1]):
            h = a * h + (1 - a) * x[:, i]
            found.append(h)
        return torch.stack(found, 1)


def get_inputs():
    return [torch.randn(6, 20)]


def get_init_inputs():
    return []
