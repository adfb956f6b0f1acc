import torch
from torch import nn


class Model(nn.Module):
    """Causal attention of queries whose first place is said."""

    def forward(self, q, k, v, start: int = 0):
        scores = q @ k.transpose(1, 2) / 8**0.5
        at = torch.arange(q.shape[1])[:, None] + start
        hidden = torch.arange(k.shape[1])[None] > at
        return scores.masked_fill(hidden, -1e9).softmax(-1) @ v


def get_inputs():
    return [torch.randn(2, 4, 8), torch.randn(2, 9, 8), torch.randn(2, 9, 8)]


def get_init_inputs():
    return []
