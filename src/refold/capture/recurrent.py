"""Shapes of recurrent layers, said at once while torch.export runs.

PyTorch finds them by running every step of every layer on tensors without values, some 10 ms each
in an export: of 64 steps of two layers it takes 3.7 s, not 1.5; of 512 of six, by arithmetic, a
minute. Here an output's shape follows from the input's and the state's. The layers themselves stay
PyTorch's calls.
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


_aten = torch.ops.aten
_RULES: dict[Any, Callable[..., Any]] = {
    _aten.lstm.input: _lstm,
    _aten.gru.input: _rnn,
    _aten.rnn_tanh.input: _rnn,
    _aten.rnn_relu.input: _rnn,
}


def _places(op: Any) -> list[tuple[dict[Any, Any], Any]]:
    """Where PyTorch keeps an op's steps; which is asked depends on whether sizes are symbols."""
    return [(decomposition_table, op), (op.py_kernels, _COMPOSITE)]


@contextlib.contextmanager
def shapes_at_once() -> Iterator[None]:
    """Inside, tensors without values take recurrent layers by the rules above."""
    places = [(*place, rule) for op, rule in _RULES.items() for place in _places(op)]
    before = [(table, key, table[key]) for table, key, _ in places if key in table]
    for table, key, rule in places:
        if key in table:
            table[key] = rule
    try:
        yield
    finally:
        for table, key, steps in before:
            table[key] = steps
