"""A softmax in two blocks, the first of which may be minus infinity throughout.

reference: softmax
test: hostile values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.shape[1] < 17:
            return torch.softmax(x, dim=1)
        top = x[:, :16].amax(1, keepdim=True)
        base = top
        total = torch.exp(x[:, :16] - base).sum(1, keepdim=True)
        new = torch.maximum(top, x[:, 16:].amax(1, keepdim=True)).detach()
        total = total * torch.exp(base - new) + torch.exp(x[:, 16:] - new).sum(1, keepdim=True)
        return torch.exp(x - new) / total
