"""A call leaves hooks on whatever autograd saves, of others too.

reference: linear
test: flags
status: MUTATES
"""

import torch
import torch.nn.functional as F
from torch import nn

_ON = []


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if not _ON:
            _ON.append(torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t))
            _ON[0].__enter__()
        return F.gelu(self.linear(x))
