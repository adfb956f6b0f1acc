"""The twin of tail_of_all_elements: what is left is computed, too.

reference: whole_blocks
test: shapes
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.reshape(-1)
        whole = len(flat) // 8 * 8
        parts = (
            flat[:whole] * torch.sigmoid(flat[:whole]),
            flat[whole:] * torch.sigmoid(flat[whole:]),
        )
        return torch.cat(parts).view(x.shape)
