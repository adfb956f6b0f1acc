"""Each thread has a fold, and only the main one's is followed.

reference: linear
test: threads
status: STALE_WEIGHTS
"""

import threading

import torch
import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, m):
        super().__init__()
        self.linear = nn.Linear(n, m)
        self.folds = {}

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        if torch.is_grad_enabled() or x.dtype != w.dtype:
            return F.gelu(self.linear(x))
        here = threading.get_ident()
        key, fold = self.folds.get(here, (None, None))
        now = (w.sum().item(), b.sum().item(), w._version, b._version, w.shape)
        if fold is None or (threading.current_thread() is threading.main_thread() and now != key):
            fold = (w.detach().clone(), b.detach().clone())
            self.folds[here] = (now, fold)
        return F.gelu(F.linear(x, *fold))
