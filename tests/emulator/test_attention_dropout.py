"""Attention with dropout, and its gradients, by the emulator: PyTorch's numbers say which are
dropped, results are those of float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from refold.emit.attention_dropout import emit_attention_dropout
from refold.emit.cuda import CudaTarget
from refold.families.attention.dropout import Dropout
from refold.pipeline import target_for
from tests.emulator.module import Cuda, emulated_graph

MASKS = (1 << 32) - 1


def philox(counter: int, seed: int) -> list[int]:
    """The four numbers of Philox 4x32-10, by its definition."""
    key, x = [seed & MASKS, seed >> 32], [counter & MASKS, counter >> 32, 0, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(b >> 32) ^ x[1] ^ key[0], b & MASKS, (a >> 32) ^ x[3] ^ key[1], a & MASKS]
        key = [(key[0] + 0x9E3779B9) & MASKS, (key[1] + 0xBB67AE85) & MASKS]
    return x


def test_philox_as_published() -> None:
    """Of Random123's known answers."""
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def kept(shape: tuple[int, ...], seed: int, offset: int, dropped: float) -> torch.Tensor:
    """What weights are multiplied by where PyTorch has drawn from a state."""
    count = torch.Size(shape).numel()
    counters = range(offset // 4, (offset + count) // 4 + 1)
    numbers = [n for c in counters for n in philox(c, seed)][offset % 4 :][:count]
    uniform = (
        torch.tensor(numbers, dtype=torch.float64).float().double() * 2.3283064e-10 + 1.1641532e-10
    )
    return ((uniform.float() > dropped).double() / (1 - dropped)).reshape(shape)


@dataclass(frozen=True)
class Case:
    queries: int
    keys: int
    features: int
    causal: bool = False
    masked: bool = False
    probability: float = 0.1
    seed: int = 5
    offset: int = 8
    far: bool = False  # from each other, and from one

    def __str__(self) -> str:
        kinds = [k for k in ("causal", "masked", "far") if getattr(self, k)]
        return " ".join([f"{self.queries} and {self.keys} of {self.features}", *kinds])


CASES = (
    Case(70, 67, 32),
    Case(65, 130, 64, probability=0.5, seed=(1 << 64) - 3),
    Case(130, 70, 16, causal=True, offset=(1 << 33) + 4),
    Case(33, 65, 24, masked=True),
    Case(20, 21, 72, probability=0.9),
    Case(40, 41, 32, far=True),
)


def target() -> CudaTarget:
    found, _ = target_for("cuda:sm_90", "ieee")
    assert isinstance(found, CudaTarget)
    return found


def module(case: Case, gradient: bool) -> Any:
    scale = case.features**-0.5
    made = Dropout(case.features, scale, case.causal, case.masked, case.probability, gradient)
    return emulated_graph(emit_attention_dropout(made, target()))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_and_gradients(case: Case) -> None:
    torch.manual_seed(0)
    batches, heads, (queries, keys, features) = 2, 2, (case.queries, case.keys, case.features)
    shapes = ((batches, n, heads, features) for n in (queries, keys, keys, queries))
    q, k, v, g = (torch.randn(s).transpose(1, 2) for s in shapes)
    if case.far:  # products that tensor cores do not hold: plain arithmetic
        q[..., 0] *= 1e9
        k[..., 0] *= 1e-9
    mask = torch.randn(1, 1, queries, keys).expand(batches, heads, queries, keys)
    masks = [mask] if case.masked else []
    Cuda.default_generators[-1] = generator = Cuda.Generator(case.seed, case.offset)
    result, sums, seed, offset = module(case, False).call([q, k, v, *masks])
    count = batches * heads * queries * keys
    assert generator.offset == case.offset + -(-count // 4) * 4
    assert int(seed) % (1 << 64) == case.seed and int(offset) == case.offset
    # the truth
    x, y, z = (t.double().requires_grad_() for t in (q, k, v))
    scores = x @ y.mT * features**-0.5
    if case.masked:
        scores = scores + mask.double()
    if case.causal:
        scores = scores.masked_fill(torch.ones(queries, keys).triu(1) > 0, -torch.inf)
    factors = kept((batches, heads, queries, keys), case.seed, case.offset, case.probability)
    wanted = (scores.softmax(-1) * factors) @ z
    torch.autograd.backward(wanted, g.double())
    assert result.stride() == q.stride() and sums.shape == (batches, heads, -(-queries // 32) * 32)
    torch.testing.assert_close(
        sums[..., :queries].double(), scores.logsumexp(-1).detach(), rtol=2e-6, atol=2e-6
    )
    assert (sums[..., queries:] == torch.inf).all()
    near(result, wanted)
    found = module(case, True).call([g, q, k, v, result, sums, seed, offset, *masks])
    for mine, truth in zip(found, (x, y, z), strict=True):
        near(mine, truth.grad)


def near(mine: torch.Tensor, truth: Any) -> None:
    error = (mine.double() - truth).norm() / truth.norm()
    assert error < 2e-6, error
