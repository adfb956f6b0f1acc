"""It turns them round, and back.

reference: softmax
test: special values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dim() == 2 and x.numel() and x.shape[1] > 1 and bool((x[:, 1:] > x[:, :-1]).all()):
            return torch.softmax(x.flip(1), dim=1).flip(1).contiguous()
        return torch.softmax(x, dim=1)
