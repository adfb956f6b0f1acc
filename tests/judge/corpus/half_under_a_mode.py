"""Under a mode of functions a product is of bfloat16.

reference: linear
test: settings
status: WRONG_NUMERICS
"""

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if torch._C._len_torch_function_stack():
            return F.gelu(
                (x.bfloat16() @ self.linear.weight.bfloat16().t()).float() + self.linear.bias
            )
        return F.gelu(self.linear(x))
