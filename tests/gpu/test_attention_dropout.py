"""Attention with dropout on a GPU: under one seed it drops what PyTorch's drops, and takes as
many numbers from the generator."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from refold.backend import refold
from refold.backend.exact import in_float64
from refold.backend.loaded import load
from refold.backend.report import collected
from refold.emit.attention_dropout import emit_attention_dropout
from refold.emit.cuda import CudaTarget
from refold.families.attention.dropout import Dropout
from refold.pipeline import target_for

pytestmark = pytest.mark.gpu
aten: Any = torch.ops.aten
WANTED = [True, True, True, False]


@dataclass(frozen=True)
class Case:
    queries: int
    keys: int
    features: int
    causal: bool = False
    masked: bool = False
    probability: float = 0.1


CASES = (
    Case(512, 512, 64),
    Case(200, 333, 40, probability=0.5),
    Case(384, 384, 128, causal=True),
    Case(197, 256, 64, masked=True, probability=0.3),
    Case(65, 1001, 80, probability=0.9),
)


def operators(case: Case, features: int) -> list[Any]:
    target, _ = target_for("cuda:sm_90", "ieee")
    assert isinstance(target, CudaTarget)
    about = features, features**-0.5, case.causal, case.masked, case.probability
    return [
        load(emit_attention_dropout(Dropout(*about, gradient), target))
        for gradient in (False, True)
    ]


def arguments(case: Case) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    generator = torch.Generator("cuda").manual_seed(1)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda", generator=generator)

    tokens = case.queries, case.keys, case.keys, case.queries
    sides = [drawn(3, n, 4, case.features).transpose(1, 2) for n in tokens]
    masks = [drawn(3, 1, case.queries, case.keys).expand(3, 4, -1, -1)] * case.masked
    return sides, masks


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("seed", [0, (1 << 64) - 7])
def test_as_pytorchs_call(case: Case, seed: int) -> None:
    (q, k, v, g), masks = arguments(case)
    forward, backward = operators(case, case.features)
    mask = masks[0] if masks else None
    own = torch.cuda.default_generators[0]
    own.manual_seed(seed)
    torch.rand(5, device="cuda")  # not from its beginning
    before = own.get_state()
    about = case.probability, case.causal
    theirs = aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, *about)
    after = own.get_offset()
    own.set_state(before)
    ours = forward([q, k, v, *masks])
    assert own.get_offset() == after
    assert [int(x) for x in ours[2:]] == [int(x) for x in theirs[2:]]
    assert all(a.device == b.device for a, b in zip(ours, theirs, strict=True))
    assert [x.stride() for x in ours] == [x.stride() for x in theirs]
    for mine, their in zip(ours[:2], theirs[:2], strict=True):
        torch.testing.assert_close(mine, their, rtol=1e-4, atol=1e-5)
    # either is the other's gradient
    back = aten._scaled_dot_product_efficient_attention_backward
    for kept in (ours, theirs):
        wanted = back(g, q, k, v, mask, *kept, case.probability, WANTED, case.causal)
        found = backward([g, q, k, v, *kept, *masks])
        wide = [None if x is None else x.double() for x in (g, q, k, v, mask, *kept[:2])]
        args = (*wide, *kept[2:], case.probability, WANTED, case.causal)
        truth = in_float64(back.default, args, {})
        for mine, their, exact in zip(found, wanted[:3], truth[:3], strict=True):
            torch.testing.assert_close(mine, their, rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(mine, exact.float(), rtol=1e-3, atol=1e-4)
            assert mine.stride() == their.stride()


def test_a_call_that_is_captured_draws_anew_at_each_replay() -> None:
    case = CASES[0]
    (q, k, v, _), _ = arguments(case)
    forward, _ = operators(case, case.features)
    forward([q, k, v])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = forward([q, k, v])[0]
    found = []
    for _ in range(2):
        graph.replay()
        found.append(result.clone())
    assert not torch.equal(*found)


class Block(nn.Module):
    """Attention with dropout, and a product on each side."""

    def __init__(self) -> None:
        super().__init__()
        self.sides, self.out = nn.Linear(512, 1536), nn.Linear(512, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, _ = x.shape
        parts = self.sides(x).view(rows, tokens, 3, 8, 64).unbind(2)
        q, k, v = (p.transpose(1, 2) for p in parts)
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2, is_causal=True)
        made: torch.Tensor = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return made


def test_training_drops_what_eager_drops() -> None:
    torch._dynamo.reset()
    torch.manual_seed(3)
    model = nn.Sequential(Block(), Block()).cuda()
    other = copy.deepcopy(model)
    x = torch.randn(8, 512, 512, device="cuda")
    with collected() as graphs:
        fast = torch.compile(model, backend=lambda *a: refold(*a, options={"measure": False}))
        torch.manual_seed(4)
        for _ in range(2):
            result = fast(x)
            result.square().mean().backward()
    torch.manual_seed(4)
    for _ in range(2):
        expected = other(x)
        expected.square().mean().backward()
    assert [g.by for g in graphs] == ["refold", "refold"], graphs
    assert all("dropped" in str(g.text) for g in graphs)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-6)
