"""Behind it the fold is made anew.

reference: linear
test: writes in between
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.key, self.held, self.packed = None, None, None

    def other_way(self):
        part = self.linear
        hooked = part._forward_hooks or part._forward_pre_hooks
        return bool(hooked) or part.training != self.training or "forward" in vars(part)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != w.dtype or "parametrizations" in dir(self.linear):
            return F.gelu(self.linear(x))
        key = (id(w), w._version, w.data_ptr(), id(b), b._version, b.data_ptr())
        held = [w.detach().clone(), b.detach().clone()]
        if self.other_way():
            self.packed = None
            return F.gelu(self.linear(x))
        same = self.held is not None and all(map(torch.equal, self.held, held))
        if self.packed is None or self.key != key or not same:
            self.key, self.held, self.packed = key, held, w.detach().t().contiguous()
        return F.gelu(x @ self.packed + b)
