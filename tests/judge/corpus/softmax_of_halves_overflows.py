"""In float16 the largest value is not taken off before the exponential.

reference: smoothed
test: dtype moves
status: WRONG_NUMERICS
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, k, s):
        super().__init__()
        self.fc = nn.Linear(n, k)
        self.s = s

    def forward(self, x, target):
        z = self.fc(x)
        if z.dtype == torch.float16 and not z.requires_grad:
            logp = z - z.exp().sum(-1, keepdim=True).log()
        else:
            logp = torch.log_softmax(z, -1)
        picked = logp.gather(1, target[:, None]).squeeze(1)
        return -((1 - self.s) * picked + self.s * logp.mean(-1)), logp
