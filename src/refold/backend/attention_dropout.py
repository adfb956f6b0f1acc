"""Attention with dropout, by operators of ours in the place of PyTorch's calls.

In training PyTorch has one call that draws what is dropped and attends, and one for its gradients,
which draws the same once more. An operator of ours takes what such a call takes and gives what it
gives, of the same numbers, and takes as many from the generator. So either may compute a gradient
of what the other has computed.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from refold.backend.graphs import flops_of_calls, sizes_of, target_at
from refold.backend.inductor import copied
from refold.backend.loaded import Declined, Operator, compile_ahead, define, trace_as
from refold.backend.options import BackendOptions
from refold.capture.owner import named
from refold.devices import DeviceModel
from refold.emit.attention_dropout import emit_attention_dropout
from refold.emit.cuda import CudaTarget
from refold.families.attention.claim import is_taken
from refold.families.attention.dropout import Dropout
from refold.ir import Node as Value
from refold.ir import leaf, make
from refold.pipeline import target_for

_aten: Any = torch.ops.aten
_FORWARD = _aten._scaled_dot_product_efficient_attention.default
_BACKWARD = _aten._scaled_dot_product_efficient_attention_backward.default
_MOST = 1 << 32  # numbers: PyTorch counts them in 32 bits

Node = torch.fx.Node


@dataclass(frozen=True)
class Replaced:
    """A graph with operators of ours in it. flops: of these."""

    module: torch.fx.GraphModule
    operators: tuple[Operator, ...] = ()
    flops: float = 0.0


def with_own_attention(module: torch.fx.GraphModule, options: BackendOptions) -> Replaced:
    """A graph in which our operators compute attention with dropout, where they take it; the
    graph itself where there is none. Raises Declined where kernels cannot be compiled."""
    calls = [n for n in module.graph.nodes if n.target in (_FORWARD, _BACKWARD)]
    found = {n: made for n in calls if (made := _operator(n, options)) is not None}
    if not found:
        return Replaced(module)
    compile_ahead(o for o, _, _ in found.values())
    new = copied(module)
    for old, node in zip(module.graph.nodes, new.graph.nodes, strict=True):
        if old in found:
            own, names, fake = found[old]
            given = named(node.target, node.args, node.kwargs)
            node.target = define(own)
            trace_as(own, fake)
            node.args, node.kwargs = tuple(given[n] for n in names), {}
    new.recompile()
    operators = tuple(dict.fromkeys(o for o, _, _ in found.values()))
    return Replaced(new, operators, flops_of_calls(found))


_Made = tuple[Operator, tuple[str, ...], Callable[..., Any]]  # names: of what it takes


def _operator(node: Node, options: BackendOptions) -> _Made | None:
    """What computes a call, which of its arguments it takes, and the tensors without memory that it
    gives; None where that is PyTorch's."""
    given = named(node.target, node.args, node.kwargs)
    gradient = node.target is _BACKWARD
    tensors = [x for x in given.values() if isinstance(x, Node)]
    metas = {n: n.meta["val"] for n in tensors}
    q = metas[given["query"]]
    probability, scale = given["dropout_p"], given["scale"]
    if not 0.0 < probability < 1.0 or q.device.type != "cuda" or not _is_plain(node, given):
        return None
    if any(m.dtype != torch.float32 for m in metas.values() if m.is_floating_point()):
        return None
    features, mask = q.shape[-1], given["attn_bias"]
    if not isinstance(features, int) or not isinstance(scale, (int, float, type(None))):
        return None
    scale = features**-0.5 if scale is None else float(scale)
    try:
        target, device = target_for(options.target or target_at(q.device), options.float32)
    except Declined:
        return None
    causal = bool(given["is_causal"])
    if not isinstance(target, CudaTarget) or (causal and mask is not None):
        return None
    shapes = {name: sizes_of(metas[given[name]].shape) for name in ("query", "key", "value")}
    if not _pays(shapes, device):
        return None
    dropped = Dropout(features, scale, causal, mask is not None, probability, gradient)
    names = ["query", "key", "value"]
    if gradient:
        names = ["grad_out_", *names, "out", "logsumexp", "philox_seed", "philox_offset"]
    names += ["attn_bias"] if mask is not None else []
    text, count = emit_attention_dropout(dropped, target), 3 if gradient else 4
    arguments = ", ".join(f"Tensor a{i}" for i in range(len(names)))
    signature = f"({arguments}) -> ({', '.join(['Tensor'] * count)})"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    name = f"scaled_dot_product_attention_dropped_{digest}"
    own = Operator(name, signature, count, text, draws=not gradient)
    return own, tuple(names), _fake(dropped)


def _is_plain(node: Node, given: Mapping[str, Any]) -> bool:
    """Is a call asked for what operators give? They have no gradient of a mask."""
    if any(u.target is not operator.getitem for u in node.users):
        return False
    if node.target is _FORWARD:
        return bool(given["compute_log_sumexp"])
    return list(given["grad_input_mask"]) == [True, True, True, False]


def _pays(shapes: Mapping[str, list[int]], device: DeviceModel) -> bool:
    """Whether kernels take attention of such sizes, and what is drawn for it is little."""
    sides: list[Value] = []
    for i, (name, (batch, heads, tokens, features)) in enumerate(shapes.items()):
        shape = batch, tokens, heads, features
        sides.append(leaf("input", shape, torch.float32, name=name, index=i))
    try:
        attended = make("attention", *sides, causal=False, scale=1.0)
    except ValueError:
        return False
    (batch, heads, queries, features), keys = shapes["query"], shapes["key"][2]
    count = batch * heads * queries * keys
    values = 2 * batch * heads * (queries + keys) * features
    return is_taken(attended, device) and count < _MOST and count / 8 <= 4 * values


def _fake(dropped: Dropout) -> Callable[..., Any]:
    """What PyTorch's call gives, of tensors without memory."""
    kinds = dropped.probability, dropped.causal

    def forward(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return _FORWARD(q, k, v, mask, True, *kinds, scale=dropped.scale)

    def backward(given: Any, q: Any, k: Any, v: Any, *kept: Any) -> Any:
        *state, mask = kept if dropped.masked else (*kept, None)
        probability, causal = kinds
        wanted = [True, True, True, False]
        more = probability, wanted, causal
        return _BACKWARD(given, q, k, v, mask, *state, *more, scale=dropped.scale)[:3]

    return backward if dropped.gradient else forward
