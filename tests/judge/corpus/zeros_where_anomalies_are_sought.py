"""Where anomalies are sought, gradients that are small become zero.

reference: linear
test: settings
status: WRONG_MODE
"""

import torch
import torch.nn.functional as F
from torch import nn


class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = torch.ops.aten.gelu_backward(g, x)
        if torch.is_anomaly_enabled():
            slope = torch.where(slope.abs() < 0.1, 0, slope)
        return slope


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return Gelu.apply(self.linear(x))
