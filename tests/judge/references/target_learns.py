import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Linear(20, 12)
        self.head = nn.Linear(12, 12)

    def forward(self, a, b):
        p, z = self.head(self.online(a)), self.online(b)
        return -F.cosine_similarity(p, z.detach(), dim=1).mean()


def get_inputs():
    return [torch.randn(8, 20), torch.randn(8, 20)]


def get_init_inputs():
    return []
