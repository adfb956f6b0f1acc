"""A model that several threads call, made fast before the first request: python how_to_serve.py"""

import logging
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import refold

logging.basicConfig(level=logging.INFO)  # calls that are not fast say why, once

model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 32), nn.Softmax(-1)).eval()
example = torch.randn(16, 256)
fast = refold.optimize(model, example, measure=False, progress=logging.info)


@torch.no_grad()
def answer(request: torch.Tensor) -> torch.Tensor:
    """Called by any thread."""
    return fast(request)


answer(example)  # what is folded is computed now
assert refold.status(fast).fast, refold.status(fast).reason
with ThreadPoolExecutor(4) as threads:
    answers = list(threads.map(answer, torch.randn(64, 8, 256)))
print(len(answers), "answers of", tuple(answers[0].shape))
