"""A layer of `nn.TransformerEncoder`, which is one operator in inference, taken apart.

So its products, its softmax and its norms are found and fused as any other model's are.
"""

from __future__ import annotations

import math

import torch

from refold.capture.aten_move import permuted
from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Value, value
from refold.ir import Node, as_scalar, make


def _mapped(x: Value, weight: Value, bias: Value) -> Value:
    out = (*x.shape[:-1], weight.shape[0]), x.dtype
    found: Value = HANDLERS["linear"](out, x, weight, bias)
    return found


def _normalised(x: Value, weight: Value, bias: Value, eps: float) -> Value:
    found: Value = HANDLERS["layer_norm"]((x.shape, x.dtype), x, [x.shape[-1]], weight, bias, eps)
    return found


def _added(x: Value, y: Value) -> Value:
    return Value(make("add", x.node, y.node), x.shape)


def _left_out(mask: Value, kind: int | None) -> Node:
    """Where scores [batch, heads, queries, keys] are left out. The mask is true there, or not zero.

    kind: PyTorch's mask_type. 0: [queries, keys]; 1: [batch, keys]; 2: of all four axes.
    """
    need((kind, mask.rank) in ((0, 2), (1, 2), (2, 4)), "a mask of another type or rank")
    if mask.dtype != torch.bool:
        need(mask.dtype.is_floating_point, "a mask of whole numbers")
        mask = Value(make("ne", mask.node, as_scalar(0.0, mask.dtype)), mask.shape)
    if kind == 1:
        mask = value(mask.node, (mask.shape[0], 1, 1, mask.shape[1]))
    return mask.node


def _attention(x: Value, heads: int, weight: Value, bias: Value, masked: Node | None) -> Value:
    """Attention of x [batch, tokens, width] to itself, before its last linear layer."""
    batch, tokens, width = x.shape
    assert isinstance(width, int)
    each = width // heads
    whole = _mapped(x, weight, bias)

    def part(i: int) -> Value:
        own = make("slice", whole.node, axis=-1, start=i * width, length=width)
        return permuted(value(own, (batch, tokens, heads, each)), [0, 2, 1, 3])

    q, k, v = (part(i) for i in range(3))
    scale = as_scalar(1 / math.sqrt(each), x.dtype)
    scores = make("mul", make("linear", q.node, k.node), scale)
    if masked is not None:
        scores = make("where", masked, as_scalar(-math.inf, x.dtype), scores)
    weights = make("softmax", scores, axis=-1)
    found = make("linear", weights, permuted(v, [0, 1, 3, 2]).node)
    back = permuted(value(found, (batch, heads, tokens, each)), [0, 2, 1, 3])
    return value(back.node, x.shape)


@handles("_transformer_encoder_layer_fwd", by_device=True)
def _encoder_layer(
    out: Out,
    x: Value,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Value,
    qkv_bias: Value,
    proj_weight: Value,
    proj_bias: Value,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Value,
    norm_bias_1: Value,
    norm_weight_2: Value,
    norm_bias_2: Value,
    ffn_weight_1: Value,
    ffn_bias_1: Value,
    ffn_weight_2: Value,
    ffn_bias_2: Value,
    mask: Value | None = None,
    mask_type: int | None = None,
    *,
    device: str | None,
) -> Value:
    """On a GPU PyTorch takes a GELU's other form, by the hyperbolic tangent, as cuBLAS has it."""
    need(device in ("cpu", "cuda"), "another device")
    gelu = "gelu_tanh" if device == "cuda" else "gelu"
    need(x.rank == 3 and x.shape[-1] == embed_dim, "the input's rank")
    need(x.dtype == out[1] and x.dtype in (torch.float32, torch.float64), "rounding to 16 bits")
    masked = None if mask is None else _left_out(mask, mask_type)

    def attention(x: Value) -> Value:
        found = _attention(x, num_heads, qkv_weight, qkv_bias, masked)
        return _mapped(found, proj_weight, proj_bias)

    def forward(x: Value) -> Value:
        inner = _mapped(x, ffn_weight_1, ffn_bias_1)
        inner = Value(make(gelu if use_gelu else "relu", inner.node), inner.shape)
        return _mapped(inner, ffn_weight_2, ffn_bias_2)

    first = norm_weight_1, norm_bias_1, eps
    second = norm_weight_2, norm_bias_2, eps
    if norm_first:
        x = _added(x, attention(_normalised(x, *first)))
        x = _added(x, forward(_normalised(x, *second)))
    else:
        x = _normalised(_added(x, attention(x)), *first)
        x = _normalised(_added(x, forward(x)), *second)
    return result(x.node, out)
