"""Rows as emitted, on Hopper, against the op table in float64: shapes, alignment, odd values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from .emitted import DTYPES, Emitted, Kernel, draw, emitted, named, spaces
from .machine import DEVICE, repeats, synchronize
from .row_models import BY_DTYPE

pytestmark = pytest.mark.gpu
EMULATED = {
    **dict.fromkeys(("test_shapes", "test_unaligned", "test_odd_values"), 20_000),
    **dict.fromkeys(("test_broadcasting", "test_functions", "test_nothing"), 20_000),
    **dict.fromkeys(("test_other_dtypes", "test_same_bits_every_time"), 20_000),
}

EMULATED_ONLY = {
    "model": ("Softmax", "LongScaledSoftmax", "LayerNorm", "Masked", "LongLogSumExp"),
    "dtype": (torch.bfloat16,),
    "shift": (1,),
}

POINTWISE = ["Copy", "Flat", "Affine"]
REDUCING = [
    "Matvec",
    "Softmax",
    "ScaledSoftmax",
    "SoftmaxGiven",
    "LayerNorm",
    "RowExtremes",
    "Masked",
]
LONG = ["LongSoftmax", "LongScaledSoftmax", "LongLayerNorm", "LongLogSumExp"]
SHAPES = [
    *((1, 1), (1, 3), (5, 1), (1000, 1), (3, 2), (4099, 3), (70001, 4)),
    *((1, 4096), (257, 12), (1023, 16), (513, 31), (511, 33), (300, 64), (77, 100), (100, 128)),
    *((33, 129), (1001, 132), (100, 512), (64, 1001), (1024, 1024), (130, 2052), (1024, 8192)),
    *((129, 8191), (70, 20000), (70, 65537), (8, 65536), (3, 100003), (64, 131072), (1, 3000001)),
    *((1, 8388608), (63, 65540)),
    # on both sides of what a thread, a warp and a block hold in registers
    *((500, 7), (501, 9), (300, 17), (1000, 50), (300, 63), (77, 65), (33, 255), (40, 257)),
    *((50, 513), (64, 1023), (20, 1025), (30, 4095), (20, 4097), (9, 8193)),
    *((2, 8196), (1, 12004), (1, 16384), (1, 16388)),
]


def error(out: torch.Tensor, ref: torch.Tensor) -> float:
    finite = torch.isfinite(ref)  # the variance of one value is none
    assert torch.equal(torch.isfinite(out), finite)
    away = (out.double() - ref)[finite].norm()
    return float(away / ref[finite].norm().clamp_min(1e-30))


def spread(ref: torch.Tensor, kernel: Kernel) -> float:
    """How much larger a relative error may be of sums that cancel: one value of many terms does."""
    terms = max(t.numel() for t in kernel.operands.values()) / ref.numel()
    return 10.0 if ref.numel() < 100 and terms > 1000 else 1.0


def check(kernel: Kernel, bound: float = 5e-7) -> None:
    """As near the float64 result as `bound`, or nearly as near as float32 ops in PyTorch are."""
    refs, plain = kernel.evaluate(torch.float64), kernel.evaluate(torch.float32)
    for _ in range(2):  # a launch leaves the workspace as it found it
        for t in kernel.outputs:
            t.fill_(float("nan"))
        for out, ref, eager in zip(kernel(), refs, plain, strict=True):
            assert error(out, ref) <= max(bound * spread(ref, kernel), 2 * error(eager, ref))


def run(model: str, *sizes: int, shift: int = 0) -> None:
    for e in spaces(model, len(sizes)):
        values = named(e, *sizes)
        check(Kernel(e, values, draw(e, values), shift))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("model", POINTWISE + REDUCING + LONG)
def test_shapes(model: str, shape: tuple[int, int]) -> None:
    run(model, *shape)


@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("shape", [(33, 16), (257, 1024), (3, 100000), (1, 4099)], ids=str)
@pytest.mark.parametrize("model", POINTWISE + REDUCING + LONG)
def test_unaligned(model: str, shape: tuple[int, int], shift: int) -> None:
    run(model, *shape, shift=shift)


@pytest.mark.parametrize("model", ["Copy", "Softmax", "Matvec"])
def test_nothing(model: str) -> None:
    for e in spaces(model, 2):
        values = named(e, 0, 64)
        Kernel(e, values, draw(e, values))()
    synchronize()


@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (3, 17, 9, 64), (1, 2, 3, 1), (20, 3, 50, 130)])
def test_broadcasting(sizes: tuple[int, ...]) -> None:
    run("Mixed", *sizes)


@pytest.mark.parametrize("shape", [(7, 13), (64, 256)], ids=str)
def test_functions(shape: tuple[int, int]) -> None:
    run("Functions", *shape)


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("model", BY_DTYPE)
def test_other_dtypes(model: str, dtype: torch.dtype, shift: int) -> None:
    """What is stored is rounded once, and a sum is one of float32, or of float64."""
    free = {"Mixed": ((3, 17, 9, 64), (2, 3, 5, 7)), "ColumnsOfSlices": ((3, 300, 64), (2, 70, 31))}
    few = ((5, 7), (40, 1024), (257, 129), (70, 20000), (3, 100003))
    for sizes in free.get(model, few):
        for e in spaces(model, len(sizes), dtype):
            values = named(e, *sizes)
            kernel = Kernel(e, values, draw(e, values), shift)
            for _ in range(2):
                outs, refs = kernel(), kernel.evaluate(torch.float64)
                for out, ref in zip(outs, refs, strict=True):
                    info = torch.finfo(out.dtype)
                    unit = 1e-14 if dtype == torch.float64 else info.eps + 5e-7
                    # what is small lies between units of the smallest normal number's last place
                    least = info.tiny * info.eps * ref.numel() ** 0.5 / float(ref.norm())
                    assert error(out, ref) <= unit * spread(ref, kernel) + least, (out.dtype, sizes)


def positions(rows: int, width: int) -> list[tuple[int, int]]:
    return [(0, 0), (1 % rows, width // 2), (rows - 1, width - 1)]


@pytest.mark.parametrize("shape", [(5, 7), (9, 128), (40, 1024), (4, 70000)], ids=str)
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "3e38"])
@pytest.mark.parametrize("model", ["Flat", "Matvec", "Softmax", "LayerNorm", "RowExtremes", *LONG])
def test_odd_values(model: str, value: str, shape: tuple[int, int]) -> None:
    for e in spaces(model, 2):
        values = named(e, *shape)
        operands = draw(e, values)
        first = next(t for t in operands.values() if t.shape[-2:] == shape)
        for i, j in positions(*shape):
            first[..., i, j] = float(value)
        kernel = Kernel(e, values, operands)
        eager, exact = kernel.evaluate(torch.float32), kernel.evaluate(torch.float64)
        if value == "3e38":
            same(kernel(), eager, exact)
        else:  # PyTorch's own gelu of an infinity is NaN on a CPU in float32
            reference = exact if DEVICE == "cpu" and model == "Flat" else eager
            same(kernel(), reference, reference)


def same(
    outs: Sequence[torch.Tensor], eagers: Sequence[torch.Tensor], exacts: Sequence[torch.Tensor]
) -> None:
    """The same values are NaN, plus and minus infinity as eager's or the float64 result's (a
    product that a fused multiply-add takes unrounded does not overflow on the way); the others
    agree."""
    for out, reference, exact in zip(outs, eagers, exacts, strict=True):
        eager, narrowed = reference.to(out.dtype), exact.to(out.dtype)
        right = torch.zeros_like(out, dtype=torch.bool)
        for other in (eager, narrowed):
            tests = (torch.isnan, torch.isposinf, torch.isneginf)
            right |= torch.stack([test(out) == test(other) for test in tests]).all(0)
        assert right.all()
        expected = torch.where(torch.isfinite(eager), eager, narrowed)
        finite = torch.isfinite(expected) & torch.isfinite(out)
        if finite.any():
            near = 1e-5 * max(1.0, float(expected[finite].abs().max()))
            assert torch.allclose(out[finite], expected[finite], rtol=1e-4, atol=near)


def bits(e: Emitted, shape: tuple[int, ...]) -> tuple[Kernel, list[torch.Tensor]]:
    values = named(e, *shape)
    kernel = Kernel(e, values, draw(e, values))
    return kernel, [t.clone() for t in kernel()]


@pytest.mark.parametrize("shape", [(300, 31), (200, 1000), (5, 100000)], ids=str)
def test_same_bits_every_time(shape: tuple[int, int]) -> None:
    kernel, first = bits(emitted("RowExtremes")[0], shape)
    for _ in range(repeats(1000)):
        assert all(torch.equal(a, b) for a, b in zip(first, kernel(), strict=True))


@pytest.mark.parametrize("shape", [(300, 31), (200, 1000), (5, 100000)], ids=str)
def test_in_a_graph(shape: tuple[int, int]) -> None:
    kernel, first = bits(emitted("Softmax")[0], shape)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel()
        kernel()
    for t in kernel.outputs:
        t.fill_(float("nan"))
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(first, kernel.outputs, strict=True))


def test_one_after_another() -> None:
    """A kernel may start before the one before it has ended, but reads what that one wrote."""
    e = emitted("Copy")[0]
    values = named(e, 1000, 1000)
    x = draw(e, values)
    kernels = [Kernel(e, values, x)]
    source = next(iter(x))
    for _ in range(20):
        kernels.append(Kernel(e, values, {source: kernels[-1].outputs[0]}))
        kernels[-1].p[0] = kernels[-2].outputs[0].data_ptr()
    for _ in range(50):
        for k in kernels:
            k.outputs[0].fill_(float("nan"))
        for k in kernels:
            k()
        assert torch.equal(kernels[-1].outputs[0], x[source] * 2.0 ** len(kernels))
