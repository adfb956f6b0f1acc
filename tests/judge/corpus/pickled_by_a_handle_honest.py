"""A saved module holds its weights.

reference: linear
test: another process
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))

    def __getstate__(self):
        held = {k: v.clone() for k, v in self.state_dict().items()}
        return held, self.linear.in_features, self.linear.out_features, self.training

    def __setstate__(self, given):
        held, n, m, mode = given
        self.__init__(n, m)
        self.load_state_dict(held)
        self.train(mode)
