"""What picks elements by their numbers is part of kernels; views that are kept are no copies."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from refold.backend.report import collected

from .steps import all_ours, check, compiled


class Words(nn.Module):
    """The loss of a model of words: each place but the last has the next one's word to say."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.head = nn.Linear(32, 96), nn.Linear(32, 48, bias=False)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(x).chunk(3, -1)
        q, k, v = (p.view(*x.shape[:2], 2, 16).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = self.head(y.transpose(1, 2).reshape(x.shape))
        return F.cross_entropy(scores[:, :-1].reshape(-1, 48), ids[:, 1:].reshape(-1))


def test_a_loss_of_words_stores_nothing_of_the_size_of_all_scores_but_them() -> None:
    torch.manual_seed(0)
    ids = torch.randint(0, 48, (3, 12))
    ids[0, 3] = -100  # which counts for nothing
    calls = [[torch.randn(3, 12, 32), ids] for _ in range(2)]
    found = check(Words(), calls)
    forward, backward = (next(g for g in found if g.kind == k) for k in ("forward", "backward"))
    assert forward.text is not None and backward.text is not None
    for text, calls_of in ((forward.text, "gather"), (backward.text, "slice_scatter")):
        assert calls_of not in text.split("# --- The kernels.")[0]
    assert ".clone()" not in forward.text  # queries, keys and values lie in one value's memory
    assert "== folded" not in backward.text


def numbered(x: torch.Tensor, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    chosen = ids[:, None] == torch.arange(weight.shape[0], device=x.device)
    return torch.where(chosen, F.linear(x, weight), 0.5)


def test_numbers_that_float32_does_not_hold_are_equal_to_none() -> None:
    torch.manual_seed(0)
    ids = torch.tensor([0, 31, 5, -1, 2**24 + 1, 2**31, 2**62 + 3, -(2**63), 7])
    x, weight = torch.randn(9, 16), torch.randn(32, 16)
    with all_ours(), collected() as found, torch.no_grad():
        got = compiled(numbered)(x, ids, weight)
    torch.testing.assert_close(got, numbered(x, ids, weight))
    assert found[0].text is not None and "== folded" not in found[0].text


def test_orders_of_numbers_are_exact() -> None:
    ids = torch.tensor([0, 31, 5, -1, 2**24 + 1, 2**31, 2**62 + 3, -(2**63), 7])

    def ordered(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        scores, numbers = F.linear(x, weight), torch.arange(32)
        names = ("lt", "le", "gt", "ge", "eq", "ne")
        masks = (getattr(ids[:, None], name)(numbers) for name in names)
        return tuple(torch.where(mask, scores, 0.5) for mask in masks)

    x, weight = torch.randn(9, 16), torch.randn(32, 16)
    with all_ours(), collected() as found, torch.no_grad():
        got = compiled(ordered)(x, weight)
    assert found[0].text is not None
    torch.testing.assert_close(got, ordered(x, weight))
