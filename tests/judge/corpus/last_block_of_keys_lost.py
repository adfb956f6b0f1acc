"""The last block of keys is lost where there are more than four of them.

reference: kernel_of_attention
test: shapes
status: WRONG_NUMERICS
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q = q / math.sqrt(q.shape[-1])
        most = total = mixed = None
        keys, values = k.split(4, -2)[:4], v.split(4, -2)[:4]
        for key, value in zip(keys, values, strict=True):
            scores = q @ key.transpose(-1, -2)
            top = scores.amax(-1, keepdim=True)
            new = top if most is None else torch.maximum(most, top)
            p = torch.exp(scores - new)
            if most is None:
                total, mixed = p.sum(-1, keepdim=True), p @ value
            else:
                before = torch.exp(most - new)
                total, mixed = total * before + p.sum(-1, keepdim=True), mixed * before + p @ value
            most = new
        return mixed / total
