"""Its input gets no gradient where the weights are frozen."""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        wanted = self.linear.weight.requires_grad
        return F.gelu(self.linear(x if wanted else x.detach()))
