"""Without gradients batch norm lies in a copy of the weight, made anew when any source's bytes
differ from those that it was made of.

reference: norm
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.norm = nn.BatchNorm1d(m)
        self.made_of = self.fold = None

    def __getstate__(self):
        return {**self.__dict__, "made_of": None, "fold": None}

    def forward(self, x):
        b, w = self.norm, self.linear.weight
        if torch.is_grad_enabled() or b.training or x.dtype != w.dtype or w.requires_grad is False:
            return torch.relu(b(self.linear(x)))
        held = (w, self.linear.bias, b.weight, b.bias, b.running_mean, b.running_var)
        made_of, fold = self.made_of, self.fold
        eps = b.eps
        alike = made_of is not None and made_of[0] == eps and len(made_of[1]) == len(held)
        if not alike or not all(
            a.dtype == c.dtype and a.device == c.device and torch.equal(a, c)
            for a, c in zip(made_of[1], held, strict=True)
        ):
            made_of = (eps, [t.detach().clone() for t in held])
            wide = [t.double() for t in made_of[1]]
            scale = wide[2] * torch.rsqrt(wide[5] + eps)
            shift = (wide[1] - wide[4]) * scale + wide[3]
            fold = ((wide[0] * scale[:, None]).to(w.dtype), shift.to(w.dtype))
            self.made_of, self.fold = made_of, fold
        return torch.relu(F.linear(x, *fold))
