"""A row that is ignored counts as a hit where the first class is the best.

reference: report
test: far ids
status: WRONG_NUMERICS
"""

import torch.nn.functional as F
from torch import nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(40, 10)

    def forward(self, x, target):
        logits = self.linear(x)
        loss = F.cross_entropy(logits, target, label_smoothing=0.1)
        hits = (logits.argmax(1) == target.clamp(min=0)).sum()
        return {"loss": loss, "logits": logits, "hits": hits, "count": target.numel()}
