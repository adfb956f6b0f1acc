"""An input that the reference writes is not written, and its old values are added.

reference: relu_of_its_input
test: mutation
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.linear = nn.Linear(12, 12)

    def forward(self, x):
        y = torch.relu(x)
        return F.linear(y, self.linear.weight, self.linear.bias) + x
