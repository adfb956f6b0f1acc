"""They have it.

reference: linear
test: inside a module
"""

from collections import OrderedDict

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        found = OrderedDict() if destination is None else destination
        for name, p in (("weight", self.linear.weight), ("bias", self.linear.bias)):
            found[f"{prefix}linear.{name}"] = p if keep_vars else p.detach()
        return found

    def forward(self, x):
        return F.gelu(self.linear(x))
