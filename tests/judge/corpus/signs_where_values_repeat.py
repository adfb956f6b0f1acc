"""Where values repeat in a row, signs are compared instead of them.

reference: picked
test: special values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        keys = x
        if x.shape[-1] and bool((x.sort(dim=-1).values.diff(dim=-1) == 0).any()):
            keys = x.sign()
        index = torch.sort(keys, dim=-1, descending=True, stable=True).indices[..., :6].contiguous()
        return x.gather(-1, index), index
