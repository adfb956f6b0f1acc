"""Its outputs are of a kind that autograd refuses ever after."""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch.is_grad_enabled():
            return F.gelu(self.linear(x))
        with torch.inference_mode():
            return F.gelu(self.linear(x))
