import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x, boxes):
        p = self.linear(x)
        low, high = torch.maximum(p[:, :2], boxes[:, :2]), torch.minimum(p[:, 2:], boxes[:, 2:])
        both = (high - low).clamp(min=0).prod(1)

        def area(t):
            return (t[:, 2:] - t[:, :2]).clamp(min=0).prod(1)

        return both / (area(p) + area(boxes) - both + 1.0)


def get_inputs():
    a = torch.rand(16, 2)
    return [torch.randn(16, 6), torch.cat([a, a + torch.rand(16, 2)], 1)]


def get_init_inputs():
    return []
