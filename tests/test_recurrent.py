"""Recurrent layers are captured without a step of them being run on tensors without values."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._decomp import decomposition_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import refold
from refold import introspect
from refold.capture import FREE, Example, program
from refold.capture.arguments import Arguments


class Head(nn.Module):
    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.norm = layer, nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        last = state[0] if isinstance(state, tuple) else state
        return torch.relu(self.norm(y) * 2), last * 3, y


@pytest.mark.parametrize(("batch_first", "bidirectional"), [(False, False), (True, True)])
@pytest.mark.parametrize(
    ("kind", "settings", "width"),
    [
        (nn.LSTM, {"num_layers": 2}, 8),
        (nn.LSTM, {"proj_size": 5}, 5),
        (nn.GRU, {}, 8),
        (nn.RNN, {"num_layers": 2, "nonlinearity": "relu"}, 8),
        (nn.RNN, {}, 8),
    ],
)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_shapes_strides_and_values(kind, settings, width, batch_first, bidirectional):
    torch.manual_seed(0)
    layer = kind(6, 8, batch_first=batch_first, bidirectional=bidirectional, **settings)
    module = Head(layer, width * (2 if bidirectional else 1)).eval()
    fast = refold.optimize(module, torch.randn(4, 7, 6), measure=False)
    x = torch.randn(3, 7, 6) if batch_first else torch.randn(4, 3, 6)  # another batch size
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [x]) is None
        for a, b in zip(module(x), fast(x), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()


def test_no_step_is_run(monkeypatch):
    def step(*args, **options):
        raise AssertionError("a step was run")

    monkeypatch.setattr("torch._decomp.decompositions._rnn_helper", step)
    lstm = torch.ops.aten.lstm.input
    before = decomposition_table[lstm]
    module = nn.LSTM(6, 8, num_layers=2)
    arguments = Arguments(module, Example((torch.randn(5, 3, 6),)))
    program.exported(module, arguments, (), FREE)
    assert decomposition_table[lstm] is before  # what others trace is theirs
    monkeypatch.setattr("refold.capture.shape_rules._RULES", {})
    with pytest.raises(AssertionError, match="a step was run"):
        program.exported(module, arguments, (), FREE)


class Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gated, self.long = nn.GRUCell(6, 8), nn.LSTMCell(6, 8, bias=False)
        self.plain, self.cut = nn.RNNCell(6, 8), nn.RNNCell(6, 8, nonlinearity="relu")

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = self.gated(x, h), *self.long(x, (h, h))
        return *given, self.plain(x, h), self.cut(x, h)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_cells_are_captured_whole_on_every_device(device):
    """Without a GPU: tensors that have no values may say that they lie on one."""
    module = Cells()
    with FakeTensorMode(shape_env=ShapeEnv()):
        for cell in module.children():
            for name, p in cell.named_parameters():
                moved = nn.Parameter(torch.empty(p.shape, device=device), requires_grad=False)
                setattr(cell, name, moved)
        args = torch.empty(3, 6, device=device), torch.empty(3, 8, device=device)
    kernels = dict(torch.ops.aten.gru_cell.default.py_kernels)
    given = Arguments(module, Example(args))
    program_ = program.exported(module, given, (), FREE).program
    assert torch.ops.aten.gru_cell.default.py_kernels == kernels  # what others trace is theirs
    nodes = program_.graph.nodes
    calls = [str(n.target) for n in nodes if "cell" in str(n.target)]
    assert calls == [
        f"aten.{kind}_cell.default" for kind in ("gru", "lstm", "rnn_tanh", "rnn_relu")
    ]
    x, h = [n.meta["val"].shape for n in nodes if n.op == "placeholder"][-2:]
    assert (x[1], h[1]) == (6, 8) and x[0] == h[0] and not isinstance(x[0], int)
