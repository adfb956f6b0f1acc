"""The states that a path came from are kept in bytes.

reference: best_path
test: constructor
status: WRONG_CONTRACT
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, n, states):
        super().__init__()
        self.score = nn.Linear(n, states)
        self.step = nn.Parameter(torch.randn(states, states))

    def forward(self, x):
        e = self.score(x)
        best, back = e[:, 0], []
        for i in range(1, e.shape[1]):
            best, at = (best.unsqueeze(-1) + self.step).max(1)
            best = best + e[:, i]
            back.append(at.to(torch.uint8))
        least, last = best.max(-1)
        path = [last]
        for at in reversed(back):
            path.append(at.long().gather(1, path[-1][:, None])[:, 0])
        return least, torch.stack(path[::-1], 1)
