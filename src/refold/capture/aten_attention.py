"""ATen's attention, of float32 and without dropout, of tokens in the order that models have."""

from __future__ import annotations

from typing import Any

import torch

from refold.capture.registry import Out, handles, need, result
from refold.capture.values import Unsupported, Value
from refold.ir import Node, as_scalar, hint, make
from refold.ir.attention import AXES, EXCHANGED, unspread


def _exchanged(node: Node) -> Node:
    return make("permute", node, order=EXCHANGED)


def _added(mask: Value) -> Node:
    """What a mask adds to scores, spread by those who read it."""
    node = mask.node
    if mask.dtype == torch.bool:
        numbers = (as_scalar(x, torch.float32) for x in (0.0, -torch.inf))
        node = make("where", node, *numbers)
    need(node.dtype == torch.float32, "a mask of another dtype")
    return unspread(node)


def _attended(
    out: Out, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, scale: float | None
) -> Value:
    need(all(x.dtype == torch.float32 and x.rank == AXES for x in (q, k, v)), "other attention")
    need(isinstance(q.shape[-1], int), "features that vary")
    factor = hint(q.shape[-1]) ** -0.5 if scale is None else scale
    need(type(factor) in (int, float), "a scale that varies")
    given = [_exchanged(x.node) for x in (q, k, v)]
    given += [_added(mask)] if mask is not None else []
    need(mask is None or not causal, "two masks")
    try:
        if mask is None:
            made = make("attention", *given, causal=causal, scale=float(factor))
        else:
            made = make("masked_attention", *given, scale=float(factor))
    except ValueError as error:
        raise Unsupported(str(error)) from error
    return result(_exchanged(made), out)


@handles("scaled_dot_product_attention")
def _attention(
    out: Out,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    need(dropout_p == 0.0 and not enable_gqa, "dropout, or heads that share keys")
    return _attended(out, q, k, v, attn_mask, is_causal, scale)


@handles("_scaled_dot_product_efficient_attention")
def _efficient(
    out: list[Out],
    q: Value,
    k: Value,
    v: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> list[Any]:
    """Of its four results the first: the others are for the gradient."""
    need(dropout_p == 0.0, "dropout")
    return [_attended(out[0], q, k, v, attn_bias, is_causal, scale), None, None, None]


@handles("_scaled_dot_product_flash_attention_for_cpu")
def _on_cpu(
    out: list[Out],
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Any]:
    """Of its two results the first: the other is for the gradient."""
    need(dropout_p == 0.0, "dropout")
    return [_attended(out[0], q, k, v, attn_mask, is_causal, scale), None]
