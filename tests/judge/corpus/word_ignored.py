"""A word that the caller gives is taken and not used.

reference: upsample
test: optional arguments
status: WRONG_CONTRACT
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 1)

    def forward(self, x, size: int = 14, mode: str = "bilinear"):
        y = self.conv(x)
        return F.interpolate(y, size=(size, size), mode="bilinear", align_corners=False)
