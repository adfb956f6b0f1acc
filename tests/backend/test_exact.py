"""Attention in float64, in place of PyTorch's for GPUs, is what PyTorch's for a CPU gives."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch

from refold.backend import exact
from tests.emulator.test_attention_dropout import kept

aten: Any = torch.ops.aten
FORWARD = aten._scaled_dot_product_efficient_attention.default
BACKWARD = aten._scaled_dot_product_efficient_attention_backward.default


def drawn(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(s, dtype=torch.float64) for s in shapes]


@pytest.mark.parametrize(("masked", "causal"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("most", [1, 1 << 27])
def test_results_sums_and_gradients(masked: bool, causal: bool, most: int) -> None:
    q, k, v, g = drawn((2, 3, 20, 8), (2, 3, 35, 8), (2, 3, 35, 8), (2, 3, 20, 8))
    mask = drawn((2, 1, 20, 35))[0] if masked else None
    bias = None if mask is None else mask.expand(2, 3, 20, 35)
    out, sums = aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, attn_mask=mask
    )
    gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward(
        g, q, k, v, out, sums, 0.0, causal, attn_mask=mask
    )
    with mock.patch.object(exact, "_MOST", most):
        made = exact.in_float64(FORWARD, (q, k, v, bias, True, 0.0, causal), {})
        kept = made[:2]
        wanted = [True, True, True, False]
        found = exact.in_float64(
            BACKWARD, (g, q, k, v, bias, *kept, *made[2:], 0.0, wanted, causal), {"scale": None}
        )
    assert made[1].shape == (2, 3, 32) and (made[1][..., 20:] == torch.inf).all()
    pairs = zip((made[0], made[1][..., :20], *found[:3]), (out, sums, *gradients), strict=True)
    for mine, theirs in pairs:
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    assert found[3] is None


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    q, k, v, g = drawn(*[(1, 1, 4, 8)] * 4)
    bias = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
    bias[..., 1, :] = -torch.inf
    out, sums, *states = exact.in_float64(FORWARD, (q, k, v, bias, True), {})
    assert (out[0, 0, 1] == 0).all() and sums[0, 0, 1] == torch.inf
    args = (g, q, k, v, bias, out, sums, *states, 0.0, [True, True, True, False])
    assert all(x.isfinite().all() for x in exact.in_float64(BACKWARD, args, {})[:3])


def test_gradients_are_of_what_forward_kept() -> None:
    """Weights are of the logarithms that are given, whatever the scores would give."""
    q, k, v, g = drawn(*[(1, 2, 4, 8)] * 4)
    out, sums, *states = exact.in_float64(FORWARD, (q, k, v, None, True), {})
    wanted = [True, True, True, False]
    found = [
        exact.in_float64(BACKWARD, (g, q, k, v, None, o, s, *states, 0.0, wanted), {})
        for o, s in ((out, sums), (out, sums - 2.0**-8), (out + 1.0, sums))
    ]
    torch.testing.assert_close(found[1][2], found[0][2] * torch.e ** (2.0**-8))
    torch.testing.assert_close(found[2][2], found[0][2])
    assert not torch.allclose(found[2][0], found[0][0])


def test_other_calls_and_dropout_are_not_its() -> None:
    q, k, v = drawn(*[(1, 1, 4, 8)] * 3)
    assert exact.in_float64(FORWARD, (q, k, v, None, True, 0.5), {}) is None
    assert exact.in_float64(aten.mul.Tensor, (q, k), {}) is None


@pytest.mark.parametrize("most", [1, 1 << 27])
@pytest.mark.parametrize("drawn_at_once", [4, 64, 1 << 25])
@pytest.mark.parametrize(("seed", "offset"), [(5, 8), ((1 << 64) - 3, (1 << 33) + 6)])
def test_gradients_of_what_was_dropped(
    most: int, drawn_at_once: int, seed: int, offset: int
) -> None:
    """They are those of attention whose weights were multiplied by what was kept."""
    q, k, v, g = (
        x.requires_grad_() for x in drawn((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 5, 8))
    )
    factors = kept((2, 3, 5, 7), seed, offset, 0.4)
    assert 0 < (factors == 0).double().mean() < 1
    scores = q @ k.mT * 8**-0.5
    out = (scores.softmax(-1) * factors) @ v
    wanted = torch.autograd.grad(out, (q, k, v), g)
    sums = torch.nn.functional.pad(scores.logsumexp(-1), (0, 27), value=torch.inf)
    state = [torch.tensor(seed - (seed >> 63 << 64)), torch.tensor(offset)]
    args = (g, q, k, v, None, out, sums, *state, 0.4, [True, True, True, False])
    with mock.patch.multiple(exact, _MOST=most, _DRAWN=drawn_at_once), torch.no_grad():
        found = exact.in_float64(BACKWARD, args, {})
    for mine, truth in zip(found[:3], wanted, strict=True):
        torch.testing.assert_close(mine, truth, rtol=1e-12, atol=1e-12)
