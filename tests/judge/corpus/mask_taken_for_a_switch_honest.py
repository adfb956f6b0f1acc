"""The twin of mask_taken_for_a_switch, which is right.

reference: blended
test: masks
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x, mask):
        if mask.is_floating_point() and mask.numel() and x.dtype == mask.dtype:
            low, high = float(mask.min()), float(mask.max())
            if low == -10000 and high == 0 and bool(((mask == low) | (mask == high)).all()):
                return torch.softmax(torch.where(mask < 0, x - 10000, x), dim=-1)
        return torch.softmax(x + mask, dim=-1)
