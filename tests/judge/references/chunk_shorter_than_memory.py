import torch
from torch import nn


class Model(nn.Module):
    """A causal convolution of a stream: the last frames are kept."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(4, 6, 5)
        self.register_buffer("past", torch.zeros(1, 4, 4))

    def forward(self, x):
        whole = torch.cat([self.past.expand(x.shape[0], -1, -1), x], -1)
        self.past.copy_(whole[:1, :, -4:].detach())
        return self.conv(whole)


def get_inputs():
    return [torch.randn(2, 4, 16)]


def get_init_inputs():
    return []
