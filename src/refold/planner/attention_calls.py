"""PyTorch's attention as training calls it, with what its gradient keeps, and its gradient.

A graph has such calls whole: whether kernels compute them is decided here, where the device is
known. A call that they do not take stays PyTorch's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from refold.devices import DeviceModel
from refold.families.attention.claim import is_taken
from refold.ir import Dim, Node, as_scalar, hint, make
from refold.ir.attention import EXCHANGED, unspread
from refold.ir.node import rebuild
from refold.ir.shapes import RANK
from refold.price import elements

# what a call's logarithms of sums are padded to a multiple of
_MULTIPLES = {
    "aten._scaled_dot_product_efficient_attention": 32,
    "aten._scaled_dot_product_flash_attention_for_cpu": 1,
}
_BACKWARD = "_backward"
_OF_MASK = 3  # the place of a mask's gradient among a gradient's results
_GRADIENTS = ("query_gradient", "key_gradient", "value_gradient")


def of_call(
    node: Node, done: Mapping[Node, Node], device: DeviceModel, nodes: Collection[Node]
) -> Node | None:
    """One result of a call as nodes that kernels compute; None where they do not.

    done: what became of the call's operands. nodes: of the graph.
    """
    name, given = _call_of(node)
    if name is None or given["dropout_p"] != 0.0:
        return None
    tensors = [i for i in node.inputs if i.is_float]
    q, k, v = (given[x] for x in ("query", "key", "value"))
    if any(i.dtype != torch.float32 for i in tensors) or not isinstance(q.shape[-1], int):
        return None
    scale = given["scale"] if given["scale"] is not None else hint(q.shape[-1]) ** -0.5
    mask = given["attn_bias"] if "attn_bias" in given else given["attn_mask"]
    causal = given["is_causal"]
    if type(scale) not in (int, float) or (causal and mask is not None):
        return None
    attrs: dict[str, Any] = {"scale": float(scale)}
    if mask is None:
        attrs["causal"] = bool(causal)
    prefix = "attention" if mask is None else "masked_attention"
    masks = [] if mask is None else [_as_done(unspread(mask), done)]
    sides = [exchanged(done[x]) for x in (q, k, v)]
    try:
        if not name.endswith(_BACKWARD):
            return _forward(node, prefix, (*sides, *masks), attrs, _MULTIPLES[name], device)
        if _is_read(node, _OF_MASK, nodes):
            return None
        gradient = given["grad_out_"] if "grad_out_" in given else given["grad_out"]
        behind = [exchanged(done[given["out"]]), done[given["logsumexp"]]]
        operands = [exchanged(done[gradient]), *sides, *behind, *masks]
        made = make(f"{prefix}_{_GRADIENTS[node['index']]}", *operands, **attrs)
    except ValueError:  # sizes that kernels do not know
        return None
    # all of a call's results are taken, or none is
    first = make(f"{prefix}_{_GRADIENTS[0]}", *operands, **attrs)
    return exchanged(made) if is_taken(first, device) else None


def _forward(
    node: Node,
    prefix: str,
    operands: tuple[Node, ...],
    attrs: Mapping[str, Any],
    multiple: int,
    device: DeviceModel,
) -> Node | None:
    made = make(prefix, *operands, **attrs)
    if not is_taken(made, device):
        return None
    if node["index"] == 0:
        return exchanged(made)
    if node["index"] == 1:
        q, k, _, *masks = operands
        return make(f"{prefix}_sums", q, k, *masks, **attrs, multiple=multiple)
    # where a generator stood, of which nothing was drawn
    return as_scalar(0, node.dtype) if all(d == 1 for d in node.shape) else None


def _call_of(node: Node) -> tuple[str | None, dict[str, Any]]:
    """Which of PyTorch's functions is called, and with what by its names; tensors as nodes."""
    if node.op != "aten":
        return None, {}
    name = str(node["target"]).removesuffix(".default")
    if name.removesuffix(_BACKWARD) not in _MULTIPLES:
        return None, {}
    schema = getattr(torch.ops.aten, name.removeprefix("aten.")).default._schema

    def value(coded: Any) -> Any:
        is_tensor = isinstance(coded, tuple) and coded and coded[0] == "$"
        return node.inputs[coded[1]] if is_tensor else coded

    given = {a.name: a.default_value for a in schema.arguments}
    given |= {a.name: value(x) for a, x in zip(schema.arguments, node["args"], strict=False)}
    return name, given | {name: value(x) for name, x in node["kwargs"]}


def call_flops(node: Node) -> float:
    """Multiplications and additions of a call that stays PyTorch's; of one of its kind that is not
    known here, none."""
    name, given = _call_of(node)
    if name is None:
        return 0.0
    q, k = given["query"], given["key"]
    products = 5 if name.endswith(_BACKWARD) else 2
    return products * 2.0 * elements(q) * hint(k.shape[-2]) * (0.5 if given["is_causal"] else 1.0)


def _is_read(node: Node, index: int, nodes: Collection[Node]) -> bool:
    """Does the graph have that result of the same call?"""

    def call(n: Node) -> Any:
        return n.inputs, n["target"], n["args"], n["kwargs"]

    same = (n for n in nodes if n.op == "aten" and n["index"] == index)
    return any(call(n) == call(node) for n in same)


def _as_done(node: Node, done: Mapping[Node, Node]) -> Node:
    """What became of a node, or what it is of what its operands became."""
    return done.get(node) or rebuild(node, tuple(done.get(i, i) for i in node.inputs))


# --- moves that undo each other -------------------------------------------------------------------
def exchanged(x: Node) -> Node:
    """[batch, heads, tokens, features] from [batch, tokens, heads, features], or back."""
    return moved(make("permute", x, order=EXCHANGED), (x,))


def reshaped(x: Node, shape: tuple[Dim, ...]) -> Node:
    """x in another shape, by one reshape."""
    while x.op == "reshape":
        (x,) = x.inputs
    return x if x.shape == shape else make("reshape", x, shape=shape)


def moved(node: Node, inputs: tuple[Node, ...]) -> Node:
    """A node of other inputs, without a move that one of these undoes."""
    if node.op == "reshape":
        return reshaped(inputs[0], node.shape)
    if node.op == "permute" and inputs[0].op == "permute":
        first, then = inputs[0]["order"], node["order"]
        (x,) = inputs[0].inputs
        order = tuple(first[a] for a in then)
        return x if order == tuple(range(RANK)) else make("permute", x, order=order)
    return rebuild(node, inputs)
