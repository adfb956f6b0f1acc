"""The twin of relu_of_its_input, which is right.

reference: relu_of_its_input
test: mutation
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.linear = nn.Linear(12, 12)

    def forward(self, x):
        y = x.clamp_(min=0)
        return F.linear(y, self.linear.weight, self.linear.bias) + x
