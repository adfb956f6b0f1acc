"""The thread of a call ends with it.

reference: linear
test: leaks
"""

import threading

import torch.nn.functional as F
from torch import nn

soon = threading.Event()


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        one = threading.Thread(target=soon.wait, args=(1e-5,), daemon=True)
        one.start()
        one.join()
        return F.gelu(self.linear(x))
