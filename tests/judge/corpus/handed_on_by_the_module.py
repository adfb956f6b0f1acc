"""What one line leaves on the module for the next is another thread's by then.

reference: linear
test: threads
status: NONDETERMINISTIC
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def product(self):
        self.y = self.linear(self.x)

    def forward(self, x):
        self.x = x
        self.product()
        y = F.gelu(self.y)
        return y
