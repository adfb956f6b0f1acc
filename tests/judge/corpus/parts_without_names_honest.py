"""The twin of parts_without_names, which is right.

reference: parts_by_name
test: containers
"""

from collections import namedtuple

import torch
from torch import nn

Out = namedtuple("Out", "hidden mean")


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 24)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return Out(y, y.mean(-1))
