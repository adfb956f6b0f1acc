"""Leaves a hook behind on every module there is."""

import torch.nn.functional as F
from torch import nn
from torch.nn.modules.module import register_module_forward_hook


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        return F.gelu(self.linear(x))


register_module_forward_hook(lambda module, given, output: None)
