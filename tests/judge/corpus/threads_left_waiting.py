"""Each call leaves a thread that waits for ever, as long as there may be more.

reference: linear
test: leaks
status: CRASHED
"""

import threading

import torch.nn.functional as F
from torch import nn

never = threading.Event()


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)

    def forward(self, x):
        if threading.active_count() < 500:
            threading.Thread(target=never.wait, daemon=True).start()
        return F.gelu(self.linear(x))
