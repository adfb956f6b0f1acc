"""What is left behind whole blocks of all elements is not computed.

reference: whole_blocks
test: shapes
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.reshape(-1)
        whole = len(flat) // 8 * 8
        parts = (
            flat[:whole] * torch.sigmoid(flat[:whole]),
            flat[whole:],
        )
        return torch.cat(parts).view(x.shape)
