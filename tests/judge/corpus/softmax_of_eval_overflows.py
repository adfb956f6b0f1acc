"""In eval mode the largest value is not taken off before the exponential.

reference: softmax
test: hostile values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if self.training or torch.is_grad_enabled() or not x.numel():
            return torch.softmax(x, dim=1)
        e = torch.exp(x)
        return e / e.sum(1, keepdim=True)
