"""Each call leaves a hook on the module.

reference: head
test: one tensor at a time
status: MUTATES
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(96, 5)

    def forward(self, x):
        self.register_forward_hook(lambda *a: None)
        y = F.linear(x, self.linear.weight, self.linear.bias)
        return y
