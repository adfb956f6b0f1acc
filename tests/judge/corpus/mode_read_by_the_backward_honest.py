"""The forward tells the backward its mode.

reference: norm
test: before the backward
status: ACCEPTED
"""

import torch
from torch import nn


class Normed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z, scale, shift, mean, var, eps, module):
        factor = torch.rsqrt(var + eps)
        hat = (z - mean) * factor
        ctx.save_for_backward(hat, scale, factor)
        ctx.module, ctx.training = module, module.training
        return hat * scale + shift

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        hat, scale, factor = ctx.saved_tensors
        slope = g * scale
        if ctx.training:
            slope = slope - slope.mean(0) - hat * (slope * hat).mean(0)
        return slope * factor, (g * hat).sum(0), g.sum(0), None, None, None, None


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)

    def forward(self, x):
        z, norm = self.linear(x), self.norm
        if self.training != norm.training or len(z) < 2 or not torch.is_grad_enabled():
            return torch.relu(norm(z))
        if torch._C._functorch.peek_interpreter_stack() is not None or z.dim() != 2:
            return torch.relu(norm(z))
        if norm.running_mean is None or z.dtype != torch.float32:
            return torch.relu(norm(z))
        with torch.no_grad():
            mean, var = norm.running_mean.clone(), norm.running_var.clone()
            if self.training:
                norm(z)
                var, mean = torch.var_mean(z, 0, correction=0)
        y = Normed.apply(z, norm.weight, norm.bias, mean, var, norm.eps, self)
        return torch.relu(y)
