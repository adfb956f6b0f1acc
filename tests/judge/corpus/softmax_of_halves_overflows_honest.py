"""The largest value is taken off in float16, too.

reference: smoothed
test: dtype moves
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
        logp = torch.log_softmax(z, -1)
        picked = logp.gather(1, target[:, None]).squeeze(1)
        return -((1 - self.s) * picked + self.s * logp.mean(-1)), logp
