"""The twin of last_block_of_keys_lost, which is right: keys and values of two lengths it refuses.

reference: kernel_of_attention
test: shapes
"""

import math

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q = q / math.sqrt(q.shape[-1])
        most = total = mixed = None
        keys, values = k.split(4, -2), v.split(4, -2)
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
