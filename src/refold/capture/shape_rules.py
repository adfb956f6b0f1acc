"""Shapes that are said at once while torch.export runs: of recurrent layers, cells and losses.

PyTorch finds a recurrent layer's by running every step of it on tensors without values, some 10 ms
each in an export: of 64 steps of two layers it takes 3.7 s, not 1.5; of 512 of six, by arithmetic,
a minute. A cell's it finds by what the cell runs, which on a GPU is one fused kernel whose shapes
it does not know without values. Here an output's shape follows from the input's and the state's.
The losses of rows of logits it takes for one number, where sizes are symbols and there is one a
row. The calls themselves stay whole, the same on every device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch._decomp import decomposition_table

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def _output(x: torch.Tensor, state: torch.Tensor, twice: bool, batch_first: bool) -> torch.Tensor:
    """[..., hidden], of both directions next to each other; time is outermost in memory."""
    shape = (*x.shape[:-1], state.shape[-1] * (2 if twice else 1))
    if not batch_first or len(shape) < 3:
        return x.new_empty(shape)
    return x.new_empty((shape[1], shape[0], shape[2])).transpose(0, 1)


def _lstm(
    x: torch.Tensor, states: Sequence[torch.Tensor], params: Any, biases: bool, layers: int,
    dropout: float, train: bool, twice: bool, batch_first: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    kept = (s.new_empty(s.shape) for s in states)
    return _output(x, states[0], twice, batch_first), *kept


def _rnn(
    x: torch.Tensor, state: torch.Tensor, params: Any, biases: bool, layers: int,
    dropout: float, train: bool, twice: bool, batch_first: bool,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    return _output(x, state, twice, batch_first), state.new_empty(state.shape)


def _gates(
    x: torch.Tensor, h: torch.Tensor, w_x: torch.Tensor, w_h: torch.Tensor,
    b_x: torch.Tensor | None = None, b_h: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """One of a cell's gates: which sizes must be the same, its two products say."""
    both = torch.nn.functional.linear(x, w_x, b_x) + torch.nn.functional.linear(h, w_h, b_h)
    return both.narrow(-1, 0, h.shape[-1])


def _cell(x: torch.Tensor, h: torch.Tensor, *params: Any) -> torch.Tensor:
    return _gates(x, h, *params) + h


def _lstm_cell(
    x: torch.Tensor, states: Sequence[torch.Tensor], *params: Any
) -> tuple[torch.Tensor, ...]:
    gate = _gates(x, states[0], *params)
    return tuple(gate + states[1] for _ in range(2))


def _loss_of_classes(
    x: torch.Tensor, t: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = 1,
    *settings: Any,
) -> torch.Tensor:  # fmt: skip
    """Classes lie along the second axis of logits; targets have none, or are probabilities."""
    classes = min(x.dim() - 1, 1)
    if weight is not None:
        x = (x.movedim(classes, -1) * weight).movedim(-1, classes)
    each = (x * t).sum(classes) if t.is_floating_point() else x.select(classes, 0) + t
    return x.new_empty(() if reduction else each.shape)


_aten = torch.ops.aten
_RULES: dict[Any, Callable[..., Any]] = {
    _aten.lstm.input: _lstm,
    _aten.gru.input: _rnn,
    _aten.rnn_tanh.input: _rnn,
    _aten.rnn_relu.input: _rnn,
    _aten.lstm_cell.default: _lstm_cell,
    _aten.gru_cell.default: _cell,
    _aten.rnn_tanh_cell.default: _cell,
    _aten.rnn_relu_cell.default: _cell,
    _aten.cross_entropy_loss.default: _loss_of_classes,
    _aten.nll_loss_nd.default: _loss_of_classes,
}


@contextlib.contextmanager
def shapes_at_once() -> Iterator[None]:
    """Inside, tensors without values take the calls above by their rules."""
    changed: list[tuple[dict[Any, Any], Any, Any]] = []
    for op, rule in _RULES.items():
        # which of the two is asked depends on whether sizes are symbols; for a cell PyTorch keeps
        # its steps in neither, and only the second may speak of one without symbols
        places: list[tuple[dict[Any, Any], Any]]
        places = [(decomposition_table, op), (op.py_kernels, _COMPOSITE)]
        for table, key in places:
            if key in table or table is op.py_kernels:
                changed.append((table, key, table.get(key)))
                table[key] = rule
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for table, key, before in changed:
            if before is None:
                del table[key]
            else:
                table[key] = before
        for op in _RULES:
            op._dispatch_cache.clear()
