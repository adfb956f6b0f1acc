"""Which weights want gradients is asked at each call.

reference: linear
test: frozen parameters
status: ACCEPTED
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.wants = None

    def forward(self, x):
        held = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled():
            self.wants = [t.requires_grad for t in held]
        wants = self.wants or (True, True)
        held = [t if w else t.detach() for t, w in zip(held, wants, strict=True)]
        return F.gelu(F.linear(x, *held))
