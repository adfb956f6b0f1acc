"""They are called.

reference: linear
test: hooks
"""

import torch.nn.functional as F
import torch.nn.modules.module as hooks
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def __call__(self, *args, **kwargs):
        if (
            self._forward_hooks
            or self._forward_pre_hooks
            or self._backward_hooks
            or hooks._global_forward_hooks
        ):
            return super().__call__(*args, **kwargs)
        if self._backward_pre_hooks:
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)

    def forward(self, x):
        return F.gelu(self.linear(x))
