"""The twin of whole_numbers_stay_whole, which is right.

reference: scaled
test: kinds of inputs
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.add(1, x, alpha=0.5) if x.is_floating_point() else x * 0.5 + 1
        return y
