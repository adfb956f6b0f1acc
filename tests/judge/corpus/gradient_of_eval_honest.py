"""In eval mode all samples have gradients.

reference: linear
test: batches with gradients
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if y.requires_grad and not self.training:
            y.register_hook(lambda g: torch.cat([g[:32], g[32:] * 1]))
        return y
