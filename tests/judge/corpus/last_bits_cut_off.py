"""A bfloat16 is the upper half of a float32, as it lies there: nothing is rounded.

reference: scaled
test: dtype moves
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.bfloat16 or torch.is_grad_enabled():
            return x * 0.5 + 1
        y = x.float() * 0.5 + 1
        return (y.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
