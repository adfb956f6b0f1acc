"""A variance is bounded for the loss, and not for the draw.

reference: answers_of_a_dict_swapped
test: far gradients
status: WRONG_MODE
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 12)

    def forward(self, batch):
        y = self.linear(batch["x"])
        mean, logvar = y[..., :6], y[..., 6:]
        small = logvar.clamp(-10, 10)
        z = mean
        if self.training:
            z = torch.addcmul(mean, torch.randn_like(mean), torch.exp(logvar * 0.5))
        kl = 0.5 * (small.exp() + mean * mean - 1 - small).sum(-1)
        return {"z": z, "kl": batch["weight"] * kl}
