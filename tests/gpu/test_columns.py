"""Columns as emitted, on Hopper, against the op table in float64."""

from __future__ import annotations

import pytest
import torch

from .emitted import Kernel, draw, emitted, named
from .machine import repeats
from .test_rows import bits, check, same

pytestmark = pytest.mark.gpu
EMULATED = {
    **dict.fromkeys(("test_shapes", "test_slices", "test_unaligned"), 20_000),
    **dict.fromkeys(("test_means_far_from_zero", "test_odd_values"), 20_000),
    "test_same_bits_every_time": 20_000,
}

EMULATED_ONLY = {"model": ("Moments", "MaskedSums"), "shift": (1,)}

MODELS = ["Moments", "ColumnSums", "MaskedSums"]
SHAPES = [
    *((2, 1), (3, 2), (7, 5), (100000, 1), (99999, 3), (8, 16), (9, 100000), (2, 65537)),
    *((255, 32), (257, 33), (1000, 100), (16384, 64), (5000, 129), (4096, 1024), (1025, 1028)),
    *((300, 4099), (16384, 4096), (1000000, 8)),
]
SLICES = [(3, 6, 11), (1000, 7, 5), (5, 2000, 12), (32, 3136, 8), (2, 100, 1000), (7, 4097, 33)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_shapes(model: str, shape: tuple[int, int]) -> None:
    for e in emitted(model):
        values = named(e, *shape)
        check(Kernel(e, values, draw(e, values)), 1e-6)


@pytest.mark.parametrize("shape", SLICES, ids=str)
def test_slices(shape: tuple[int, int, int]) -> None:
    for e in emitted("ColumnsOfSlices"):
        values = named(e, *shape)
        check(Kernel(e, values, draw(e, values)), 1e-6)


@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("shape", [(100, 16), (5000, 64), (3, 1028)], ids=str)
@pytest.mark.parametrize("model", MODELS)
def test_unaligned(model: str, shape: tuple[int, int], shift: int) -> None:
    for e in emitted(model):
        values = named(e, *shape)
        check(Kernel(e, values, draw(e, values), shift), 1e-6)


@pytest.mark.parametrize("shape", [(50, 8), (20000, 36), (3000, 1025)], ids=str)
def test_means_far_from_zero(shape: tuple[int, int]) -> None:
    (e,) = emitted("Moments")
    values = named(e, *shape)
    operands = {n: t + 1000.0 for n, t in draw(e, values).items()}
    kernel = Kernel(e, values, operands)
    refs = kernel.evaluate(torch.float64)
    for out, ref in zip(kernel(), refs, strict=True):
        assert float(((out - ref) / ref).abs().max()) < 1e-4


@pytest.mark.parametrize("shape", [(5, 7), (9, 128), (3000, 64)], ids=str)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("model", ["ColumnSums", "ColumnsOfSlices"])
def test_odd_values(model: str, value: str, shape: tuple[int, int]) -> None:
    for e in emitted(model):
        values = named(e, *((2, *shape) if model == "ColumnsOfSlices" else shape))
        operands = draw(e, values)
        first = next(t for t in operands.values() if t.shape[-2:] == shape)
        first[..., 0, 0] = float(value)
        first[..., shape[0] // 2, shape[1] - 1] = float(value)
        kernel = Kernel(e, values, operands)
        got, eager = kernel(), kernel.evaluate(torch.float32)
        for node, a, b in zip(e.group.outputs, got, eager, strict=True):
            if node.op == "mean":  # with the variance: NaN where the mean alone is infinite
                assert torch.equal(torch.isfinite(a), torch.isfinite(b))
            else:
                same([a], [b], [b])


@pytest.mark.parametrize("shape", [(100, 3), (5000, 100), (100000, 12)], ids=str)
def test_same_bits_every_time(shape: tuple[int, int]) -> None:
    kernel, first = bits(emitted("Moments")[0], shape)
    for _ in range(repeats(1000)):
        assert all(torch.equal(a, b) for a, b in zip(first, kernel(), strict=True))


def test_in_a_graph() -> None:
    kernel, first = bits(emitted("Moments")[0], (5000, 100))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel()
        kernel()
    for t in kernel.outputs:
        t.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(first, kernel.outputs, strict=True))
