"""A call that ends early leaves no mark.

reference: linear
test: checkpointed
status: ACCEPTED
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.busy = False

    def forward(self, x):
        self.busy = x.requires_grad and x.grad_fn is None
        try:
            y = F.gelu(F.linear(x, self.linear.weight, self.linear.bias))
        finally:
            self.busy = False
        return y
