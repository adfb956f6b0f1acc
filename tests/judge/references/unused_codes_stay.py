import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(12, 4)
        self.register_buffer("codes", torch.randn(32, 4))
        self.register_buffer("sizes", torch.ones(32))

    def forward(self, x):
        z = self.linear(x)
        d = (z[:, None] - self.codes).square().sum(-1)
        which = d.argmin(1)
        if self.training:
            with torch.no_grad():
                counts = torch.bincount(which, minlength=32).to(z.dtype)
                self.sizes.mul_(0.9).add_(counts, alpha=0.1)
        return self.codes[which] * self.sizes[which, None]


def get_inputs():
    return [torch.randn(16, 12)]


def get_init_inputs():
    return []
