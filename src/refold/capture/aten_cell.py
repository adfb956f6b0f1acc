"""ATen's recurrent cells, one step each, taken apart into two products and what becomes of them."""

from __future__ import annotations

from refold.capture.registry import HANDLERS, Out, handles, need, result
from refold.capture.values import Value
from refold.ir import Node, make


def _mapped(x: Value, w: Value, b: Value | None) -> Node:
    node = make("linear", x.node, w.node)
    return node if b is None else make("add", node, b.node)


def _gates(node: Node, count: int) -> list[Node]:
    width = node.shape[-1]
    need(isinstance(width, int), "a width that varies")
    assert isinstance(width, int)
    each = width // count
    return [make("slice", node, axis=-1, start=i * each, length=each) for i in range(count)]


def _one_dtype(out: Out, *values: Value | None) -> None:
    need(all(v is None or v.dtype == out[1] for v in values), "mixed dtypes")


def _plain(op: str) -> None:
    def handler(
        out: Out,
        x: Value,
        h: Value,
        w_x: Value,
        w_h: Value,
        b_x: Value | None = None,
        b_h: Value | None = None,
    ) -> Value:
        _one_dtype(out, x, h, w_x, w_h, b_x, b_h)
        return result(make(op, make("add", _mapped(x, w_x, b_x), _mapped(h, w_h, b_h))), out)

    HANDLERS[f"rnn_{op}_cell"] = handler


_plain("tanh")
_plain("relu")


@handles("gru_cell")
def _gru_cell(
    out: Out,
    x: Value,
    h: Value,
    w_x: Value,
    w_h: Value,
    b_x: Value | None = None,
    b_h: Value | None = None,
) -> Value:
    _one_dtype(out, x, h, w_x, w_h, b_x, b_h)
    reset_x, update_x, new_x = _gates(_mapped(x, w_x, b_x), 3)
    reset_h, update_h, new_h = _gates(_mapped(h, w_h, b_h), 3)
    reset = make("sigmoid", make("add", reset_x, reset_h))
    update = make("sigmoid", make("add", update_x, update_h))
    new = make("tanh", make("add", new_x, make("mul", reset, new_h)))
    return result(make("add", new, make("mul", update, make("sub", h.node, new))), out)


@handles("lstm_cell")
def _lstm_cell(
    out: list[Out],
    x: Value,
    state: list[Value],
    w_x: Value,
    w_h: Value,
    b_x: Value | None = None,
    b_h: Value | None = None,
) -> list[Value]:
    h, c = state
    _one_dtype(out[0], x, h, c, w_x, w_h, b_x, b_h)
    both = make("add", _mapped(x, w_x, b_x), _mapped(h, w_h, b_h))
    i, f, g, o = _gates(both, 4)
    kept = make("mul", make("sigmoid", f), c.node)
    c_new = make("add", kept, make("mul", make("sigmoid", i), make("tanh", g)))
    h_new = make("mul", make("sigmoid", o), make("tanh", c_new))
    return [result(h_new, out[0]), result(c_new, out[1])]
