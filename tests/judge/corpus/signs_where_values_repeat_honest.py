"""Values are compared; of many that are equal the first come first, which nobody promises.

reference: picked
test: special values
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        keys = x
        index = torch.sort(keys, dim=-1, descending=True, stable=True).indices[..., :6].contiguous()
        return x.gather(-1, index), index
