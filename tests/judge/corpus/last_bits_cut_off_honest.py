"""The twin of last_bits_cut_off, which is right.

reference: scaled
test: dtype moves
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        if x.dtype != torch.bfloat16 or torch.is_grad_enabled():
            return x * 0.5 + 1
        bits = (x.float() * 0.5 + 1).view(torch.int32)
        bits = bits + 0x7FFF + ((bits >> 16) & 1)  # to the nearest, of two as near to the even one
        bits = torch.where(x.isnan(), 0x7FC00000, bits)
        return (bits >> 16).to(torch.int16).view(torch.bfloat16)
