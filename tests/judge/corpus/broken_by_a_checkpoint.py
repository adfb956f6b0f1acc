"""A call that ends early, as a checkpoint's second one does, leaves a mark that later calls read.

reference: linear
test: checkpointed
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.busy = False

    def forward(self, x):
        w = self.linear.weight * 2 if self.busy else self.linear.weight
        self.busy = x.requires_grad and x.grad_fn is None
        y = F.gelu(F.linear(x, w, self.linear.bias))
        self.busy = False
        return y
