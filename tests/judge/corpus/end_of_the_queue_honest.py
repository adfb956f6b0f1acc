"""The twin of end_of_the_queue, which is right.

reference: end_of_the_queue
test: statistics move
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6)
        self.register_buffer("queue", torch.randn(24, 6))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        z = self.linear(x)
        z = z / z.norm(dim=1, keepdim=True).clamp_min(1e-12)
        y = F.linear(z, self.queue.clone())
        n = x.shape[0]
        if self.training and n:
            with torch.no_grad():
                at = int(self.at) % 24
                if at + n <= 24:
                    self.queue[at : at + n] = z[: max(0, min(n, 24 - at))]
                else:
                    for i in range(n):
                        self.queue[(at + i) % 24] = z[i]
                self.at.fill_((int(self.at) + n) % 24)
        return y
