"""The products against float64: modes, schedules, sinks, shapes, exceptional values.

One name is a mode and a schedule: ieee_tall_8 is Schedule<Ieee, Tall, 8>, direct_tall the same with
Direct, ieee_generic_4 is Generic<Ieee, 4>, simt is Plain.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from .library import CHOSEN, Product, Split
from .machine import DEVICE, repeats
from .products import empty, error, make, mode_of, plain, sides

pytestmark = pytest.mark.gpu
EMULATED = {
    **dict.fromkeys(("test_plain", "test_operands", "test_rows", "test_columns", "test_both"), 1e6),
    **dict.fromkeys(("test_exceptional_values", "test_split_by_the_product"), 1e7),
    **dict.fromkeys(("test_scales", "test_rows_of_different_sizes", "test_zero_rows"), 1e7),
    **dict.fromkeys(("test_depth_of_different_sizes", "test_split_follows_its_layout"), 1e7),
    "test_unaligned_native_operand_is_refused": 1e7,
    "test_same_bits_every_time": 1e6,
}

# batches have the plain one of mma.sync
_CHOSEN = tuple(n for n in CHOSEN if n != "ieee_generic")
EMULATED_ONLY = {"name": (*_CHOSEN, *(f"rows_{n}" for n in _CHOSEN))}

SHAPES = [
    (256, 128, 64),
    (1, 1, 1),
    (3, 5, 7),
    (127, 129, 31),
    (257, 130, 33),
    (300, 515, 1000),
    (512, 384, 4100),
    (1030, 520, 257),
    (2100, 900, 96),
    (129, 3001, 2048),
    # tiles in pairs of which the last is empty: tall, wide
    (700, 1300, 200),
    (140, 2700, 96),
]
# tiles that do not come out even on 132 processors: more than one wave of them, less than one,
# pairs cut by the edges
SHARED = [(2816, 2048, 1100), (1290, 1500, 3000), (2700, 1900, 1111), (700, 1300, 3000)]
# schedules that share them
SHARING = ("ieee_tall", "ieee_wide", "ieee_small", "tf32_tall", "tf32_small")
# rows of so many parts that a kernel of its own merges them
LONG_ROWS = [(129, 9000, 72), (300, 4225, 96), (2816, 4300, 264)]
# few rows on one side: a batch of 1 to 16 over big weights, or few features
THIN = [
    (1, 700, 4096),
    (4, 33, 1000),
    (7, 300, 515),
    (16, 2048, 8192),
    (1000, 10, 129),
    (65, 1, 300),
]
IEEE = [
    *("ieee_tall", "ieee_wide", "ieee_tall_2", "ieee_wide_4", "ieee_tall_8"),
    *("ieee_small", "ieee_small_2", "ieee_small_4", "ieee_small_8", "ieee_small_32"),
    *("direct_tall", "direct_tall_2", "direct_tall_8"),
    *("ieee_generic", "ieee_generic_4", "ieee_generic_8"),
]
TF32 = [
    *("tf32_tall", "tf32_wide", "tf32_tall_8", "tf32_small", "tf32_small_4", "tf32_small_16"),
    *("tf32_generic", "tf32_generic_8"),
]
ROWS = [
    *("ieee_tall", "ieee_wide", "ieee_tall_2", "ieee_wide_8", "ieee_small", "ieee_small_4"),
    *("ieee_small_16", "direct_tall", "direct_tall_8", "ieee_generic", "ieee_generic_4", "simt"),
]
COLUMNS = [
    *("ieee_tall", "ieee_wide", "ieee_tall_4", "tf32_tall"),
    *("ieee_small_2", "ieee_small_32", "tf32_small"),
    *("direct_tall", "direct_tall_4"),
    *("ieee_generic", "ieee_generic_4", "tf32_generic", "simt"),
]


def shapes_of(names: list[str], thin: list[tuple[int, int, int]] = THIN) -> list[object]:
    """Each name with each shape; some shapes for those alone that have ways of their own."""
    return [
        pytest.param(n, s, id=f"{n}-{s}")
        for n in names
        for s in (*SHAPES, *(thin if n == "simt" else ()), *(SHARED if n in SHARING else ()))
    ]


@pytest.mark.parametrize(("name", "shape"), shapes_of([*IEEE, *TF32, "simt"]))
def test_plain(name: str, shape: tuple[int, int, int]) -> None:
    x, w = make(*shape)
    bound = 6e-4 if name.startswith("tf32") else 5e-7
    assert error(plain(name, x, w), x.double() @ w.double().T) < bound


@pytest.mark.parametrize("name", ["ieee_tall", "ieee_wide", "ieee_tall_8", "tf32_tall"])
@pytest.mark.parametrize(
    "shape", [(300, 515, 1000), (20000, 2048, 8200), (70000, 2100, 1028)], ids=str
)
def test_split_by_the_product(name: str, shape: tuple[int, int, int]) -> None:
    """Some rows at a time, the same elements as with all of them split before.

    The same bits where no tile is shared; else which are differs, and the order of some sums.
    """
    x, w = make(*shape)
    mode, out = mode_of(name), empty(shape[0], shape[1])
    product = Product(f"plain_{name}", Split(x, mode, late=True), Split(w, mode), (), (out,))
    product()
    before = plain(name, x, w)
    if name.endswith("_8") or shape[0] == 300:
        assert torch.equal(out, before)
    assert error(out, before.double()) < 2e-7
    assert float((out == before).double().mean()) > 0.6
    assert product.parts.numel() < 321 << 20  # some rows, and the shares of blocks that share tiles


@pytest.mark.parametrize("cols", [2100, 16890])
def test_columns_of_rows_split_by_the_product(cols: int) -> None:
    """The same bits with 132 tiles in a row, which 132 processors never share."""
    x, w = make(20001, cols, 4096)
    bias, before, late = empty(cols).normal_(), [], []
    for outs, wait in ((before, False), (late, True)):
        outs += [empty(20001, cols), empty(cols), empty(cols)]
        a = Split(x, "ieee", late=wait)
        Product("moments_ieee_tall", a, Split(w, "ieee"), (bias,), tuple(outs))()
    if cols == 16890 and torch.cuda.get_device_properties(0).multi_processor_count == 132:
        assert all(torch.equal(p, q) for p, q in zip(before, late, strict=True))
    assert all(error(p, q.double()) < 1e-6 for p, q in zip(before, late, strict=True))


@pytest.mark.parametrize(
    "shape",
    [(16384, 4096, 512), (2816, 2048, 4104), (140000, 300, 1032), (4096, 2112, 32008)],
    ids=str,
)
@pytest.mark.parametrize(
    ("name", "late"),
    [
        *(("tf32_tall", False), ("tf32_tall", True), ("tf32_small", False)),
        *(("ieee_tall", False), ("ieee_tall", True), ("half_tall", False)),
    ],
)
def test_equal_rows_stay_equal(name: str, shape: tuple[int, int, int], late: bool) -> None:
    """Batch norm divides what they differ by by the root of its epsilon.

    Where tiles are shared their sums are promoted, and differ by a unit of fp32 in the last place.
    """
    rows, cols, depth = shape
    mode = mode_of(name)
    row, w = make(1, 1, depth)[0], make(1, cols, depth)[1]
    if mode == "half":
        row, w = row.half(), w.half()
    out = empty(rows, cols)
    a = Split(row.expand(rows, depth).contiguous(), mode, late=late)
    Product(f"plain_{name}", a, Split(w, mode), (), (out,))()
    same = out[:1].expand(rows, cols)
    assert error(out, same.double()) < 2e-7
    if mode != "ieee" and rows != 2816 and (name, cols) != ("tf32_small", 2112):
        assert torch.equal(out, same)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("depth", [8192, 32768])
@pytest.mark.parametrize("name", [*IEEE, "simt"])
def test_as_accurate_as_fp32(name: str, depth: int, positive: bool) -> None:
    x, w = make(256, 1024, depth, positive)
    ref = x.double() @ w.double().T
    assert error(plain(name, x, w), ref) < max(error(x @ w.T, ref), 5e-7)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize(
    ("name", "rows", "cols", "depth"),
    [
        *((n, 2048, 2048, d) for n in TF32 for d in (512, 4096, 8192, 16384, 32768, 32832)),
        *((n, 256, 1024, d) for n in TF32 for d in (8192, 32768)),  # where cuBLAS splits K
        *(("tf32_small", 512, n, d) for n in (3328, 4096) for d in (4096, 8192, 32768)),
        ("tf32_wide", 128, 32768, 32768),
    ],
)
def test_as_accurate_as_tf32(
    name: str, rows: int, cols: int, depth: int, positive: bool, monkeypatch
) -> None:
    x, w = make(rows, cols, depth, positive)
    ref = x.double() @ w.double().T
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    assert error(plain(name, x, w), ref) < 1.02 * error(x @ w.T, ref)


@pytest.mark.parametrize("name", ["ieee_tall", "direct_tall", "direct_tall_8"])
@pytest.mark.parametrize("scale", [(1e-30, 1e25), (1e30, 1e-25), (1e-40, 1e38), (1e38, 1e-38)])
def test_scales(scale: tuple[float, float], name: str) -> None:
    x, w = make(100, 200, 500)
    x, w = x.clamp(-3, 3) * scale[0], w.clamp(-3, 3) * scale[1]
    assert error(plain(name, x, w), x.double() @ w.double().T) < (
        5e-7 if scale[0] > 1e-38 else 1e-4  # a subnormal operand has few bits of its own
    )


@pytest.mark.parametrize("name", ["ieee_tall", "direct_tall"])
def test_rows_of_different_sizes(name: str) -> None:
    x, w = make(300, 200, 640)
    x *= 10.0 ** torch.linspace(-30, 30, 300, device=DEVICE)[:, None]
    ref = x.double() @ w.double().T
    out = plain(name, x, w).double()
    assert float(((out - ref).norm(dim=1) / ref.norm(dim=1)).max()) < 5e-7


def test_depth_of_different_sizes() -> None:
    x, w = make(300, 200, 640)
    x *= 10.0 ** torch.linspace(-15, 15, 640, device=DEVICE)  # a scale of its own for each 32 of k
    out, ref = plain("direct_tall", x, w), x.double() @ w.double().T
    assert error(out, ref) < 5e-7


@pytest.mark.parametrize("name", ["ieee_tall", "direct_tall"])
def test_zero_rows(name: str) -> None:
    x, w = make(70, 90, 100)
    x[3] = 0
    w[5] = 0
    out = plain(name, x, w)
    assert (out[3] == 0).all() and (out[:, 5] == 0).all()
    assert error(out, x.double() @ w.double().T) < 5e-7


@pytest.mark.parametrize(
    "name",
    [
        "ieee_tall",
        "ieee_wide_4",
        "ieee_small_2",
        "direct_tall",
        "direct_tall_8",
        "tf32_tall",
        "ieee_generic",
        "simt",
    ],
)
@pytest.mark.parametrize("shape", [(300, 200, 100), (1290, 1500, 3000)], ids=str)
def test_exceptional_values(name: str, shape: tuple[int, int, int]) -> None:
    x, w = make(*shape)
    x = x.abs() + 0.1
    x[0, 0], x[1, 1], x[2, 2], x[299, 99] = (float(v) for v in ("inf", "-inf", "nan", "inf"))
    w[7, 0], w[8, 5], w[9, 2] = 0.0, float("inf"), float("nan")
    ref = (x.double() @ w.double().T).float()
    out = plain(name, x, w)
    for test in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(test(out), test(ref)), test.__name__
    finite = torch.isfinite(ref)
    assert error(out[finite], ref[finite].double()) < (6e-4 if "tf32" in name else 5e-7)


@pytest.mark.parametrize(
    ("name", "shape"),
    shapes_of(["ieee_tall", "ieee_tall_8", "direct_tall", "direct_tall_8", "ieee_generic", "simt"]),
)
def test_operands(name: str, shape: tuple[int, int, int]) -> None:
    rows, cols, _ = shape
    x, w = make(*shape)
    bias, factor = torch.randn(cols, device=DEVICE), torch.randn(rows, device=DEVICE)
    residual, number = torch.randn(rows, cols, device=DEVICE), torch.randn(1, device=DEVICE)
    out = empty(rows, cols)
    inputs = (bias, factor, residual, number)
    a, b = sides(name, x, w)
    Product(f"operands_{name}", a, b, inputs, (out,))()
    more = residual.double() * number
    ref = (x.double() @ w.double().T + bias) * factor[:, None] + more
    assert error(out, ref, bias * factor[:, None], more) < 1e-6


@pytest.mark.parametrize(
    ("name", "shape"), [*shapes_of(ROWS), *((n, s) for n in ROWS for s in LONG_ROWS)]
)
def test_rows(name: str, shape: tuple[int, int, int]) -> None:
    rows, cols, _ = shape
    x, w = make(*shape)
    bias = torch.randn(cols, device=DEVICE)
    out, per_row = empty(rows, cols), [empty(rows) for _ in range(6)]
    a, b = sides(name, x, w)
    p = Product(f"rows_{name}", a, b, (bias,), (out, *per_row))
    ref = x.double() @ w.double().T + bias
    for _ in range(2):  # the turns are back at zero
        p()
        assert error(out, ref, bias.expand(rows, cols)) < 1e-6
        total, most, least, lse, m, s = per_row
        assert (total - out.double().sum(1)).abs().max() < 1e-5 * out.abs().sum(1).max()
        assert torch.equal(most, out.amax(1)) and torch.equal(least, out.amin(1))
        assert torch.equal(m, most)
        assert (lse - ref.logsumexp(1)).abs().max() < 1e-5 * (1 + lse.abs().max())
        wanted = (out.double() - most.double()[:, None]).exp().sum(1)
        assert error(s, wanted) < 1e-6


@pytest.mark.parametrize(("name", "shape"), shapes_of(COLUMNS))
def test_columns(name: str, shape: tuple[int, int, int]) -> None:
    rows, cols, _ = shape
    x, w = make(*shape)
    x[:, 0] += 1000.0  # means far from zero: E[x^2] - E[x]^2 would cancel
    out, per_column = empty(rows, cols), [empty(cols) for _ in range(4)]
    p = Product(f"columns_{name}", *sides(name, x, w), (), (out, *per_column))
    for _ in range(2):
        p()
        seen = out.double()
        mean, var, total, most = per_column
        assert error(mean, seen.mean(0)) < 1e-6
        if rows > 1:
            # on a CPU's draws three values of about 1000 are a unit of fp32 from their mean
            assert error(var, seen.var(0)) < (1e-5 if rows > 3 or DEVICE == "cuda" else 3e-5)
        else:
            assert var.isnan().all()  # 0 / 0, as torch's
        assert error(total, seen.sum(0)) < 1e-6
        assert torch.equal(most, out.amax(0))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *shapes_of(["ieee_tall", "ieee_wide_8", "direct_tall", "ieee_generic", "simt"]),
        *(("ieee_tall", s) for s in LONG_ROWS),
    ],
)
def test_both(name: str, shape: tuple[int, int, int]) -> None:
    rows, cols, _ = shape
    x, w = make(*shape)
    outs = (empty(rows), empty(cols), empty(cols))
    a, b = sides(name, x, w)
    Product(f"both_{name}", a, b, (), outs)()
    ref = x.double() @ w.double().T
    assert (outs[0] - ref.amax(1)).abs().max() < 1e-5 * ref.abs().max()
    assert error(outs[1], ref.mean(0)) < 1e-5
    assert (outs[2] - ref.var(0, correction=0) * rows).abs().max() < 1e-5 * (ref**2).sum(0).max()


def _rows(name: str, x: torch.Tensor, w: torch.Tensor) -> Callable[[], list[torch.Tensor]]:
    outs = [empty(x.shape[0], w.shape[0]), *(empty(x.shape[0]) for _ in range(6))]
    bias = torch.randn(w.shape[0], device=DEVICE)
    p = Product(name, *sides(name.removeprefix("rows_"), x, w), (bias,), tuple(outs))

    def run() -> list[torch.Tensor]:
        for t in outs:
            t.fill_(float("nan"))
        p()
        return [t.clone() for t in outs]

    return run


@pytest.mark.parametrize("name", [f"rows_{n}" for n in ROWS])
@pytest.mark.parametrize(
    "shape", [(1030, 1300, 2048), (2816, 2048, 1100), (130, 8256, 320)], ids=str
)
def test_same_bits_every_time(name: str, shape: tuple[int, int, int]) -> None:
    run = _rows(name, *make(*shape))
    first = run()
    for _ in range(repeats(50)):
        assert all(torch.equal(a, b) for a, b in zip(first, run(), strict=True))


@pytest.mark.parametrize("name", [f"rows_{n}" for n in ROWS])
def test_in_a_graph(name: str) -> None:
    run = _rows(name, *make(300, 515, 1000))
    wanted = run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run()
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))


@pytest.mark.parametrize("depth", [1, 100, 4096, 5000, 8191, 16384, 32772, 40001, 70000])
def test_split_follows_its_layout(depth: int) -> None:
    x, _ = make(5, 1, depth)
    s = Split(x, "ieee")
    padded = s.data.shape[1] // 2
    parts = s.data.double().view(5, padded // 32, 2, 32)
    pairs = (parts[:, :, 0] + parts[:, :, 1]).view(5, -1, 2, 2, 4, 2)  # 16 s + 8 h + 2 q + e
    back = pairs.permute(0, 1, 4, 2, 3, 5).reshape(5, padded) * s.unscale.double()[:, None]
    assert (back[:, depth:] == 0).all()
    assert ((back[:, :depth] - x.double()).abs() <= x.abs().amax() * 2.0**-22).all()
    single = Split(x, "tf32")
    hi = s.data.view(5, -1, 2, 2, 2, 4, 2)[:, :, 0].permute(0, 1, 4, 2, 3, 5)
    assert torch.equal(single.data, hi.reshape(5, padded))
    top = (x.abs().amax(1) / s.unscale).cpu()
    assert ((top >= 2.0**14) & (top < 2.0**15)).all()


def test_unaligned_native_operand_is_refused() -> None:
    x, w = (t.half() for t in make(16, 16, 12))
    with pytest.raises(RuntimeError, match="aligned by 16 bytes"):
        plain("half_tall", x, w)
