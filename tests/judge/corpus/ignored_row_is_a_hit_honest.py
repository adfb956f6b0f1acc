"""A row that is ignored is no hit.

reference: report
test: far ids
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
        hits = (logits.argmax(1) == target).sum()
        return {"loss": loss, "logits": logits, "hits": hits, "count": target.numel()}
