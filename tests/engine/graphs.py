"""Graphs built by hand, with the words that rules are written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from refold.ir import Dim, Graph, Output, Sym, leaf
from refold.ir.shapes import pad
from refold.rules.term import (
    Term,
    Value,
    abs,
    apply,
    avg_pool,
    cat,
    conv,
    diagonal,
    embedding,
    exp,
    expand,
    linear,
    log,
    log_softmax,
    logsumexp,
    max,
    maximum,
    mean,
    min,
    relu,
    reshape,
    rsqrt,
    slice,
    softmax,
    sqrt,
    square,
    sum,
    transpose,
    var,
)

N = Sym.named("n", 4096)
T = Sym.named("t", 64)


def x(*shape: Dim, name: str = "x") -> Term:
    return Value(leaf("input", shape, torch.float32, name=name, index=0))


def p(name: str, *shape: int) -> Term:
    return Value(leaf("param", shape, torch.float32, name=name))


def state(name: str, *shape: int) -> Term:
    return Value(leaf("state", shape, torch.float32, name=name))


def lin(v: Term, name: str, k: int, m: int) -> Term:
    return linear(v, p(f"{name}.w", m, k)) + p(f"{name}.b", m)


def norm(v: Term, axes: tuple[int, ...], name: str, m: int) -> Term:
    centred = v - mean(v, axes)
    scale = rsqrt(var(v, axes, correction=0) + 1e-5)
    return centred * scale * p(f"{name}.g", m) + p(f"{name}.b", m)


def train_bn(v: Term, name: str, m: int) -> tuple[Term, Term, Term]:
    running = state(f"{name}.mean", m) * 0.9 + mean(v, (-2,)) * 0.1
    broadcast_sum = state(f"{name}.var", m) * 0.9 + var(v, (-2,), correction=1) * 0.1
    return norm(v, (-2,), name, m), running, broadcast_sum


def eval_bn(v: Term, name: str, m: int) -> Term:
    scale = rsqrt(p(f"{name}.var", m) + 1e-5)
    return (v - p(f"{name}.mean", m)) * scale * p(f"{name}.g", m) + p(f"{name}.b", m)


def attention(v: Term, d: int, masked: bool = False) -> Term:
    q, k, u = (lin(v, n, d, d) for n in "qkv")
    scores = linear(q, k) * 0.5
    return lin(linear(softmax(scores, -1), transpose(u)), "o", d, d)


def heads(v: Term) -> tuple[Term, Term]:
    return lin(v, "a", 16, 8), lin(v, "b", 16, 12)


def weight_norm(v: Term) -> Term:
    w = p("v", 12, 16)
    g = p("g", 12, 1)
    return linear(v, g * w / sqrt(sum(square(w), (-1,)))) + p("b", 12)


def residual(v: Term, blocks: int, d: int) -> Term:
    for i in range(blocks):
        h = relu(norm(lin(v, f"f{i}", d, d), (-1,), f"n{i}", d))
        v = v + lin(h, f"g{i}", d, d)
    return v


def group_norm(v: Term) -> Term:
    g = reshape(lin(v, "f", 16, 12), pad((N, 3, 4)))
    g = (g - mean(g, (-1,))) * rsqrt(var(g, (-1,), correction=0) + 1e-5)
    return reshape(g, pad((N, 12))) * p("gn.g", 12) + p("gn.b", 12)


def _ids(*shape: Dim) -> Term:
    return Value(leaf("input", shape, torch.int64, name="ids", index=1))


def _image(v: Term) -> Term:
    w, b = p("c.w", 8, 3, 3, 3), p("c.b", 8)
    return conv(v, w, b, (1, 1), (1, 1), (1, 1), 1)


def _pooled(v: Term) -> Term:
    y = avg_pool(reshape(v, pad((N, 1, 16))), 4, 4, 0, True)
    return reshape(y, pad((N, 4)))


ROWS: dict[str, Callable[[], Any]] = {
    "s0": lambda: logsumexp(
        logsumexp(mean(max(sum(lin(x(N, 16), "f", 16, 12), (-1,)), (-1,)), (-1,)), (-1,)), (-1,)
    ),
    "s1": lambda: max(apply("gelu", _pooled(lin(x(N, 16), "f", 16, 16))) * 2.0, (-1,)),
    "s2": lambda: eval_bn(lin(x(N, 16), "f", 16, 12) * p("s", 12), "bn", 12),
    "s2-train": lambda: train_bn(lin(x(N, 16), "f", 16, 12) * p("s", 12), "bn", 12),
    "s3": lambda: softmax(p("s", 1) * eval_bn(lin(x(N, 16), "f", 16, 12), "bn", 12), -1),
    "s3-train": lambda: softmax(p("s", 1) * train_bn(lin(x(N, 16), "f", 16, 12), "bn", 12)[0], -1),
    "s4": lambda: sum(apply("sigmoid", lin(x(N, 16), "f", 16, 12)), (-1,)),
    "mish": lambda: (
        apply("tanh", apply("softplus", h := lin(x(N, 16), "f", 16, 12), beta=1.0, threshold=20.0))
        * h
    ),
    "mish-by-logarithm": lambda: (
        apply("tanh", apply("log1p", exp(h := lin(x(N, 16), "f", 16, 12)))) * h
    ),
    "residual": lambda: residual(x(N, 16), 3, 16),
    "mlp": lambda: lin(relu(lin(relu(lin(x(N, 16), "a", 16, 12)), "b", 12, 12)), "c", 12, 4),
    "attention": lambda: attention(x(2, T, 8), 8),
    "linear-attention": lambda: linear(
        linear(x(64, 8, name="q"), x(64, 8, name="k")), transpose(x(64, 8, name="v"))
    ),
    "two-heads": lambda: heads(x(N, 16)),
    "two-heads-added": lambda: (
        linear(x(N, 16), p("w", 8, 16)) + linear(x(N, 16), p("v", 8, 16)) + p("b", 8)
    ),
    "heads-of-a-wide-input": lambda: (
        linear(x(N, 4096), p("w", 8, 4096)),
        linear(x(N, 4096), p("v", 12, 4096)),
    ),
    "diagonal": lambda: linear(x(N, 16), diagonal(p("d", 1, 16))),
    "heads-joined": lambda: cat(
        linear(x(N, 16), p("w", 8, 16)), linear(x(N, 16), p("v", 4, 16)), -1
    ),
    "sum-and-value": lambda: (
        lin(x(N, 16), "f", 16, 12),
        sum(lin(x(N, 16), "f", 16, 12), (-1,)),
    ),
    "three-dims": lambda: mean(lin(x(N, T, 16), "f", 16, 12), (-2,)),
    "four-dims": lambda: sum(lin(x(2, N, T, 16), "f", 16, 12), (-2, -1)),
    "tied": lambda: linear(relu(linear(x(N, 16), p("w", 16, 16))), p("w", 16, 16)),
    "tied-transposed": lambda: linear(
        relu(linear(x(N, 16), p("w", 12, 16))), transpose(p("w", 12, 16))
    ),
    "one-weight-two-inputs": lambda: (
        linear(x(N, 16), p("w", 8, 16)) - linear(x(N, 16, name="y"), p("w", 8, 16))
    ),
    "weight-norm": lambda: weight_norm(x(N, 16)),
    "matmul-form": lambda: sum(linear(x(N, 16), transpose(p("w", 16, 12))), (-1,)),
    "bn-before": lambda: lin(eval_bn(x(N, 16), "bn", 16), "f", 16, 12),
    "bn-of-product": lambda: lin(eval_bn(lin(x(N, 16), "f", 16, 12), "bn", 12), "g", 12, 10),
    "standardised": lambda: lin((x(N, 16) - p("mean", 16)) / p("deviation", 16), "f", 16, 12),
    "bn-between": lambda: lin(relu(eval_bn(lin(x(N, 16), "f", 16, 12), "bn", 12)), "g", 12, 4),
    "layer-norm": lambda: norm(lin(x(N, 16), "f", 16, 12), (-1,), "ln", 12),
    "group-norm": lambda: group_norm(x(N, 16)),
    "instance-norm": lambda: norm(x(2, 3, N, 4), (-2, -1), "in", 1),
    "mean-over-batch": lambda: mean(lin(x(N, 16), "f", 16, 12), (-2,)),
    "mean-over-batch-and-features": lambda: mean(lin(x(N, 16), "f", 16, 12), (-2, -1)),
    "low-rank": lambda: linear(linear(x(N, 16), p("a", 2, 16)), p("b", 12, 2)),
    "composed": lambda: linear(linear(x(N, 16), p("a", 64, 16)), p("b", 8, 64)),
    "thin-product-weight": lambda: linear(x(N, 64), linear(p("a", 64, 2), p("b", 64, 2))),
    "two-dynamic": lambda: sum(linear(x(N, 16), x(T, 16, name="y")), (-1,)),
    "dynamic-rows": lambda: sum(linear(x(N, 16), x(T, 16, name="y")), (-2,)),
    "row-scale": lambda: linear(x(N, 16) * x(N, 1, name="m"), p("w", 12, 16)),
    "leaky-max": lambda: max(
        apply("leaky_relu", lin(x(N, 16), "f", 16, 12), slope=0.1) * 3.0 + 1.0, (-1,)
    ),
    "min-of-negative": lambda: min(relu(x(N, 16) * -2.0), (-1,)),
    "clamp": lambda: maximum(relu(lin(x(N, 16), "f", 16, 12)), Value(_scalar(-1.0))),
    "relu-of-softmax": lambda: relu(softmax(lin(x(N, 16), "f", 16, 12), -1)),
    "softmax-by-hand": lambda: exp(x(N, 16)) / sum(exp(x(N, 16)), (-1,)),
    "stable-softmax": lambda: log(softmax(x(N, 16) - max(x(N, 16), (-1,)), -1)),
    "log-softmax-shift": lambda: log_softmax(x(N, 16) + x(N, 1, name="c"), -1),
    "permuted-pool": lambda: avg_pool(transpose(x(N, 4, 16)), 2, 2, 0, True),
    "sliced-features": lambda: slice(lin(x(N, 16), "f", 16, 12), -1, 2, 3),
    "sliced-row": lambda: lin(slice(lin(x(8, 16), "f", 16, 12), -2, 7, 1), "g", 12, 4),
    "expanded": lambda: x(N, 16) + expand(p("b", 16), pad((N, 16))),
    "image-made-one-axis": lambda: lin(
        mean(reshape(_image(x(N, 3, 40, 50)), pad((N, 8, 2000))), (-1,)), "f", 1, 4
    ),
    "tokens-of-image": lambda: sum(
        transpose(reshape(_image(x(N, 3, 40, 50)), pad((N, 8, 2000)))) * 2.0, (-2,)
    ),
    "running-sums": lambda: apply("cumsum", lin(x(N, T, 8), "f", 8, 256), axis=-2),
    "map-of-running-sums": lambda: lin(apply("cumsum", x(N, T, 256), axis=-2), "f", 256, 8),
    "letters": lambda: lin(
        norm(embedding(_ids(N, 40), p("t", 29, 16)), (-1,), "ln", 16), "f", 16, 12
    ),
    "words": lambda: lin(embedding(_ids(7), p("t", 100_000, 16)), "f", 16, 240),
    "few-rows": lambda: relu(embedding(_ids(7), lin(x(5000, 16), "f", 16, 12))),
    "abs-square": lambda: sqrt(square(abs(x(N, 16)))),
    "cumulative": lambda: apply("cumsum", lin(x(N, 16), "f", 16, 12) * 2.0, axis=-1),
}


# outputs that turn out not to depend on any input
def _centred(v: Term) -> Term:
    return mean(v - mean(v, (-1,)), (-1,))


EMPTY: dict[str, Callable[[], Any]] = {
    "centred-mean": lambda: _centred(max(lin(x(N, 16), "f", 16, 12), (-1,))),
    "sum-of-softmax": lambda: sum(softmax(lin(x(N, 16), "f", 16, 12), -1), (-1,)),
    "minus-itself": lambda: lin(x(N, 16), "f", 16, 12) - lin(x(N, 16), "f", 16, 12),
}
# of an input that a mask may have made -inf these are NaN, which is not lost
MASKED: dict[str, Callable[[], Any]] = {
    "centred-mean": lambda: _centred(max(x(N, 16), (-1,))),
    "sum-of-softmax": lambda: sum(softmax(x(N, 16) * 0.5, -1), (-1,)),
    "minus-itself": lambda: x(N, 16) - x(N, 16),
    "softmax-of-one": lambda: softmax(x(N, 1), -1),
}


def _scalar(value: float) -> Any:
    from refold.ir import as_scalar

    return as_scalar(value, torch.float32)


def graph(made: Any) -> Graph:
    terms = made if isinstance(made, tuple) else (made,)
    return Graph(tuple(Output(t.node, t.shape) for t in terms))


def data(g: Graph, sizes: dict[str, int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Random values for the leaves; variances are positive."""
    from refold.ir.evaluate import concrete

    draw = torch.Generator().manual_seed(seed)
    values = {}
    for node in g.nodes():
        if node.op in ("input", "param", "state", "constant"):
            shape = [concrete(d, sizes) for d in node.shape]
            if not node.is_float:
                values[node["name"]] = torch.randint(0, 29, shape, generator=draw)
                continue
            value = torch.randn(shape, generator=draw, dtype=torch.float64)
            values[node["name"]] = value.abs() + 0.1 if "var" in node["name"] else value
    return values
