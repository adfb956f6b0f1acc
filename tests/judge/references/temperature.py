"""A state that has a number beside tensors."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.temperature = 2.0

    def get_extra_state(self):
        return {"temperature": self.temperature}

    def set_extra_state(self, state):
        self.temperature = state["temperature"]

    def forward(self, x):
        return torch.softmax(self.linear(x) / self.temperature, -1)


def get_inputs():
    return [torch.randn(10, 16)]


def get_init_inputs():
    return [16, 6]
