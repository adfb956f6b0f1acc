"""What lies halfway is rounded up, not to the even one.

reference: steps_of_an_eighth
test: special values
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        q = torch.floor(x * 8 + 0.5).clamp(-128, 127) / 8
        return x + (q - x).detach()
