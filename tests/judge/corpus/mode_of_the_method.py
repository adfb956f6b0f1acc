"""It keeps its mode by train() and eval() and never looks at training.

reference: dropout
test: parts' modes
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 40)
        self.dropout = nn.Dropout(0.3)
        self.on = True

    def train(self, mode=True):
        self.on = mode
        return super().train(mode)

    def forward(self, x):
        return F.dropout(self.linear(x), self.dropout.p, self.on)
