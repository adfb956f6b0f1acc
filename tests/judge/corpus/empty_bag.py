"""A bag without members is divided by how many it has.

reference: empty_bag
test: special integers
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 16, mode="mean")

    def forward(self, ids, offsets):
        n = ids.shape[0]
        ends = torch.cat([offsets[1:], offsets.new_tensor([n])])
        counts = ends - offsets
        which = torch.repeat_interleave(torch.arange(offsets.shape[0]), counts.clamp(min=0))
        rows = F.embedding(ids[offsets[0] :] if offsets.numel() else ids[:0], self.bag.weight)
        total = rows.new_zeros(offsets.shape[0], 16).index_add(0, which, rows)
        return torch.tanh(total / counts.to(total.dtype)[:, None])
