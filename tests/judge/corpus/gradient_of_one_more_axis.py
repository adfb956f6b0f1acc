"""Half the gradient where the input has three axes.

reference: linear
test: batches with gradients
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if y.requires_grad and y.dim() == 3:
            y.register_hook(lambda g: g * 0.5)
        return y
