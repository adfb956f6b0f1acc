"""They are not.

reference: head
test: one large sample
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        return F.linear(x, w, b)
