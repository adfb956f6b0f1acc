"""Where the second set is left out, the first one is for it, without its gradient.

reference: likenesses
test: optional arguments
status: WRONG_MODE
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(16, 24)

    def forward(self, a, b=None, centred=False):
        a = self.proj(a)
        b = a.detach() if b is None else self.proj(b)
        if centred:
            b = b - a.mean(0)
        return F.linear(F.normalize(a, dim=-1), F.normalize(b, dim=-1))
