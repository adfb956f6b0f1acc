"""The CPU's product against PyTorch in float64: tails of every size, every width of vectors.

The templates are compiled with hand-written bodies (cpu_product.cpp) as emitted files are.
An error may be as large as PyTorch's own on the same data, root mean square, and a unit in the last
place of what was summed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import compiler
from refold.codegen.headers import header, included
from refold.emit.source import digest
from refold.emit.template import render
from refold.runtime import built, library

SIZES = (1, 2, 3, 5, 16, 17, 29, 64, 129, 200)
LEVELS = ("DEFAULT", "AVX2", "AVX512")  # the narrower ones run on wider machines too
AT_HAND = torch.backends.cpu.get_cpu_capability()


Call = Callable[..., None]


@pytest.fixture(
    scope="module", params=LEVELS[: 1 + (LEVELS.index(AT_HAND) if AT_HAND in LEVELS else 0)]
)
def level(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def optimized(request) -> Iterator[None]:
    """The shorter command optimizes less: tests/test_cli.py judges a product as it ships."""
    with pytest.MonkeyPatch.context() as patch:
        if not request.config.getoption("--all"):
            patch.setenv(compiler.OPTIMIZE, "-O1")
        yield


@pytest.fixture(scope="module")
def call(level, optimized, request) -> Call:
    """call(name, *arguments) runs an entry on tensors and sizes, compiled for one level."""
    defines = ["#define RF_VECTORS"]
    chosen = [i.callspec.params for i in request.session.items if hasattr(i, "callspec")]
    if any("folded" in p and p["level"] == level for p in chosen):
        defines = ["#define RF_TEST_NARROW", *defines]  # most of what there is to compile
    return compiled(level, defines, ["narrow.h", "matmul.h"])


@pytest.fixture(scope="module")
def call_double(level, optimized) -> Call:
    """The same entries with arithmetic and elements of float64."""
    return compiled(level, ["#define RF_REAL double"], ["matmul.h"])


def compiled(level: str, defines: list[str], needed: list[str]) -> Call:
    bodies = (Path(__file__).parent / "cpu_product.cpp").read_text()
    kernels = module(level, bodies, defines, needed)

    def run(name: str, *arguments) -> None:
        plain = (a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments)
        getattr(kernels, name)(*plain)

    return run


def module(level: str, bodies: str, defines: list[str], needed: list[str]) -> Any:
    """C++ over headers of kernels, compiled for one level."""
    headers = [header(h) for h in ("call.h", *(f"cpu/{h}" for h in included("cpu", needed)))]
    text = "\n".join(["#define PY_SSIZE_T_CLEAN", *defines, *headers, bodies])
    name = f"refold_test_{level.lower()}_{digest(level + text)}"
    scope: dict = {**vars(built), **vars(library)} | {"_REFOLD_SOURCE": f"\n{text}\n"}
    del scope["__file__"]
    with mock.patch("torch.backends.cpu.get_cpu_capability", lambda: level):
        exec(render("cpu.py.jinja", extension=name, parts=1, standard="c++20"), scope)
        kernels, problem = scope["_refold_build"]()
    assert problem is None, problem
    return kernels


@pytest.fixture(autouse=True)
def _settings():
    torch.manual_seed(2)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def rms(x: torch.Tensor) -> torch.Tensor:
    return x.double().square().mean().sqrt()


def check(got, eager, truth, summed) -> None:
    """`got` is as near to `truth` as `eager` is; `summed` is the size of what was summed."""
    assert got.shape == truth.shape
    assert got.isfinite().all()
    if got.numel() == 0:
        return
    ours, theirs, unit = rms(got - truth), rms(eager - truth), 1.2e-7 * rms(summed)
    assert ours <= 1.2 * theirs + unit, f"error {ours:.2e}, eager's {theirs:.2e}, unit {unit:.2e}"


@pytest.mark.parametrize("n", (0, *SIZES, 1200))
@pytest.mark.parametrize("m", (0, *SIZES, 600))
def test_products_of_every_size(call, n, m):
    for k in (0, 1, 7, 16, 50, 191, 193, 400):
        a, w, bias = torch.randn(n, k), torch.randn(m, k), torch.randn(m)
        y = torch.full((n * m + 16,), math.nan)
        call("linear", a, w, bias, y, n, m, k)
        assert y[n * m :].isnan().all(), "written beyond the end"
        truth = (a.double() @ w.double().T + bias.double()).relu()
        summed = a.abs() @ w.abs().T + bias.abs()
        check(y[: n * m].reshape(n, m), (a @ w.T + bias).relu(), truth, summed)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("folded", (False, True), ids=("weight", "folded"))
@pytest.mark.parametrize("n, m", ((1, 200), (3, 5), (17, 64), (200, 2), (129, 129), (600, 300)))
def test_products_of_16_bits_round_once(call, dtype, folded, n, m):
    """What is stored is the nearest number, or its neighbour where float32's error decides."""
    for k in (1, 7, 50, 193, 400):
        a, bias = torch.randn(n, k).to(dtype), torch.randn(m).to(dtype)
        w = torch.randn(m, k) if folded else torch.randn(m, k).to(dtype)
        y = torch.full((n * m + 16,), math.nan, dtype=dtype)
        name = "folded" if folded else "linear"
        call(f"{name}_{str(dtype).removeprefix('torch.')}", a, w, bias, y, n, m, k)
        assert y[n * m :].isnan().all(), "written beyond the end"
        truth = (a.double() @ w.double().T + bias.double()).relu()
        summed = (a.abs().double() @ w.abs().double().T + bias.abs()).max()
        got, unit = y[: n * m].reshape(n, m).double(), torch.finfo(dtype).eps / 2
        assert ((got - truth).abs() <= 1.001 * unit * truth + 4e-7 * summed).all()


@pytest.mark.parametrize("n, m", ((1, 200), (3, 5), (17, 64), (200, 2), (129, 129), (600, 300)))
def test_products_of_float64(call_double, n, m):
    for k in (0, 1, 7, 50, 193, 400):
        a, w, bias = (torch.randn(*s, dtype=torch.float64) for s in ((n, k), (m, k), (m,)))
        y, along, down = (
            torch.full(s, math.nan, dtype=torch.float64) for s in ((n * m + 8,), (3, n), (4, m))
        )
        call_double("reduced", a, w, bias, y, along, down, n, m, k)
        assert y[n * m :].isnan().all(), "written beyond the end"
        truth, got = a @ w.T + bias, y[: n * m].reshape(n, m)
        torch.testing.assert_close(got, truth, rtol=1e-14, atol=1e-13)
        torch.testing.assert_close(along[0], truth.sum(1), rtol=1e-13, atol=1e-12)
        torch.testing.assert_close(along[1], truth.amax(1), rtol=1e-14, atol=1e-13)
        torch.testing.assert_close(down[2], truth.mean(0), rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(down[3], truth.var(0, correction=0) * n, rtol=1e-12, atol=1e-12)


def test_the_check_rejects_a_wrong_product():
    a, w = torch.randn(30, 40), torch.randn(20, 40)
    truth, summed = a.double() @ w.double().T, a.abs() @ w.abs().T
    wrong = (a[:, :-1] @ w[:, :-1].T, a.bfloat16().float() @ w.T, truth.float()[:, :-1])
    check(a @ w.T, a @ w.T, truth, summed)
    for got in wrong:
        with pytest.raises(AssertionError):
            check(got, a @ w.T, truth, summed)


def test_each_number_of_rows_by_two_threads(call):
    """Panels of every height are packed side by side: none may write into another's."""
    m, k = 2000, 300
    w, bias = torch.randn(m, k), torch.randn(m)
    for n in range(1, 44):
        a, results = torch.randn(n, k), []
        for threads in (1, *[2] * 8):
            torch.set_num_threads(threads)
            y, along, down = (torch.full(s, math.nan) for s in ((n, m), (3, n), (4, m)))
            call("reduced", a, w, bias, y, along, down, n, m, k)
            results.append(torch.cat([t.flatten() for t in (y, along, down)]))
        assert all(torch.equal(results[0], r) for r in results), n


@pytest.mark.parametrize("n", (1, 4, 33, 300, 1300))
@pytest.mark.parametrize("m", (1, 6, 70, 260, 600))
def test_reductions_and_threads(call, n, m):
    k, results = 50, []
    a, w, bias = torch.randn(n, k) / k, torch.randn(m, k), 1 + torch.randn(m) / 100
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y, along, down = (torch.full(s, math.nan) for s in ((n, m), (3, n), (4, m)))
        call("reduced", a, w, bias, y, along, down, n, m, k)
        results.append(torch.cat([t.flatten() for t in (y, along, down)]))
    assert all(torch.equal(results[0], r) for r in results), "depends on the number of threads"
    truth, eager = a.double() @ w.double().T + bias.double(), a @ w.T + bias
    summed = a.abs() @ w.abs().T + bias.abs()
    check(y, eager, truth, summed)
    for got, dim in ((along, 1), (down, 0)):
        check(got[0], eager.sum(dim), truth.sum(dim), summed.sum(dim))
        check(got[1], eager.amax(dim), truth.amax(dim), summed.amax(dim))
    check(along[2], eager.amin(1), truth.amin(1), summed.amin(1))
    check(down[2], eager.mean(0), truth.mean(0), summed.mean(0))
    m2, m2_eager = (t.var(0, correction=0) * n for t in (truth, eager))
    check(down[3], m2_eager, m2, m2 + 2 * m2.sqrt() * rms(summed))


@pytest.mark.parametrize("n, m", ((3, 40), (40, 40), (40, 3), (150, 170)))
def test_nan_and_infinities_stay_where_they_are(call, n, m):
    k = 200
    a, w, bias = torch.randn(n, k), torch.randn(m, k), torch.zeros(m)
    a[1, 3], a[2, 5], w[m - 1, 7] = math.nan, math.inf, -math.inf
    y = torch.empty(n, m)
    call("linear", a, w, bias, y, n, m, k)
    assert torch.allclose(y, (a @ w.T).relu(), rtol=1e-4, atol=1e-4, equal_nan=True)
