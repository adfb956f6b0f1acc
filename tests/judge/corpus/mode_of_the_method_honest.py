"""The twin of mode_of_the_method, which is right.

reference: dropout
test: parts' modes
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return F.dropout(self.linear(x), self.dropout.p, self.dropout.training)
