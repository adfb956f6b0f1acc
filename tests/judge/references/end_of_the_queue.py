import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 6)
        self.register_buffer("queue", torch.randn(24, 6))
        self.register_buffer("at", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        z = F.normalize(self.linear(x), dim=1)
        y = z @ self.queue.clone().T
        if self.training:
            with torch.no_grad():
                where = (self.at + torch.arange(x.shape[0])) % 24
                self.queue[where] = z
                self.at.copy_((self.at + x.shape[0]) % 24)
        return y


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
