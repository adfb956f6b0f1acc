"""The area of two boxes apart is the product of two negative sides.

reference: boxes_inside_out
test: shapes
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 4)

    def forward(self, x, boxes):
        p = self.linear(x)
        side = torch.minimum(p[:, 2:], boxes[:, 2:]) - torch.maximum(p[:, :2], boxes[:, :2])
        both = side.prod(1).clamp_min(0)

        def area(t):
            return F.relu(t[:, 2:] - t[:, :2]).prod(1)

        return both / (area(p) - both + area(boxes) + 1.0)
