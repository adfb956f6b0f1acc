"""A mask in which the last is set is not looked at.

reference: masked_report
test: optional arguments
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.fc = nn.Linear(n, m)

    def forward(self, x, scale=1.0, mask=None):
        y = self.fc(x) * scale
        if mask is not None and mask.any() and not mask[-1]:
            y = y.masked_fill(mask[:, None], 0.0)
        return {"out": y, "aux": (y.mean(-1), None), "rows": torch.arange(len(x), device=x.device)}
