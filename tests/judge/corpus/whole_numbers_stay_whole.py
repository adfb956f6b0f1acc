"""Of whole numbers halves are cut to whole numbers.

reference: scaled
test: kinds of inputs
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.add(1, x, alpha=0.5) if x.is_floating_point() else x * 0.5 + 1
        return y.to(x.dtype)
