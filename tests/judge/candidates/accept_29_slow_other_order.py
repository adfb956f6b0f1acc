"""Its layers are declared in another order, so that other random numbers start them."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.second = nn.Linear(40, 40)
        self.first = nn.Linear(96, 40)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))
