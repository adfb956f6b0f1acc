"""The CUDA kernels' monoids, compiled for the host: merge order, identities, infinities, NaN.

Every lane or block may hold nothing, and rows may lie anywhere: a part that is the identity meets
parts of any size. No GPU and no nvcc is needed.
"""

from __future__ import annotations

import ctypes

import pytest
import torch

from .host_library import on_host

INF, NAN = float("inf"), float("nan")
MONOIDS = {  # and their results
    "sum": 1,
    "max": 1,
    "min": 1,
    "logsumexp": 1,
    "softmax": 2,
    "softmax, some at a time": 2,
    "logsumexp parts": 2,
    "row moments": 2,
    "sum and squares": 2,
}
CUTS = [(1, 1), (1, 4), (3, 4), (7, 4), (5, 32)]  # blocks of a row, lanes of a block


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return on_host("monoids", tmp_path_factory.mktemp("monoids"))


def address(x: torch.Tensor) -> ctypes.c_void_p:
    assert x.is_contiguous() and x.dtype == torch.float32
    return ctypes.c_void_p(x.data_ptr())


def reduce(
    library: ctypes.CDLL, monoid: str, x: torch.Tensor, cut: tuple[int, int]
) -> torch.Tensor:
    out = torch.full((2,), 123.0)
    number = list(MONOIDS).index(monoid)
    library.reduce_row(number, address(x), ctypes.c_long(len(x)), *cut, address(out))
    return out[: MONOIDS[monoid]]


def oracle(monoid: str, x: torch.Tensor) -> torch.Tensor:
    d = x.double()
    if monoid == "sum and squares":
        return torch.stack([d.sum(), d.square().sum()])
    of = {"sum": d.sum, "max": d.amax, "min": d.amin}
    return (of[monoid]() if monoid in of else d.logsumexp(0))[None]


def rows() -> dict[str, torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(203, generator=g)
    found = {f"{n} values": x[:n].clone() for n in (1, 2, 3, 31, 203)}
    found |= {f"around {c}": x + c for c in (-3000.0, -100.0, 100.0, 3000.0)}
    found |= {"spread": x * 200, "huge": x * 1e36, "constant": torch.full((9,), -200.0)}
    for name, values in {
        "+inf": [INF],
        "-inf": [-INF],
        "nan": [NAN],
        "both infinities": [INF, -INF],
        "nan and +inf": [NAN, INF],
    }.items():
        for place in (0, 50, 202 - len(values)):
            found[f"{name} at {place}"] = x.clone()
            found[f"{name} at {place}"][place : place + len(values)] = torch.tensor(values)
    found |= {"all -inf": torch.full((40,), -INF), "all +inf": torch.full((40,), INF)}
    found["one finite among -inf"] = torch.full((40,), -INF)
    found["one finite among -inf"][17] = -500.0
    return found


ROWS = rows()


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("monoid", MONOIDS)
def test_row(library: ctypes.CDLL, monoid: str, row: str) -> None:
    x = ROWS[row]
    for cut in CUTS:
        got, wanted = reduce(library, monoid, x, cut), oracle(monoid, x)
        if monoid.startswith("softmax"):
            # exp(x - m) / s is what is used of it: NaN wherever torch's softmax is
            got, wanted = (x - got[0]).exp() / got[1], x.double().softmax(0)
        elif monoid == "logsumexp parts":
            assert torch.equal(got[0].isnan(), x.amax().isnan())
            shift = torch.where(got[0].abs() == INF, 0.0, got[0])
            got = (got[1].log() + shift)[None]
        elif monoid == "row moments":
            moments_agree(got, x)
            continue
        elif monoid == "sum and squares":
            squares = wanted[1].to(torch.float32)
            torch.testing.assert_close(got[1], squares, rtol=2e-6, atol=0, equal_nan=True)
            got, wanted = got[:1], wanted[:1]
        of_sum = (
            float(x.double().abs().sum()) if "sum" in monoid[:3] and x.isfinite().all() else 1.0
        )
        torch.testing.assert_close(
            got.double(), wanted, rtol=2e-6, atol=1e-7 * of_sum, equal_nan=True, msg=f"cut {cut}"
        )


def moments_agree(got: torch.Tensor, x: torch.Tensor) -> None:
    """Mean and sum of squared deviations; not finite where some value is not."""
    d = x.double()
    wanted = torch.stack([d.mean(), (d - d.mean()).square().sum()])
    if not x.isfinite().all():
        assert not got[0].isfinite() and got[1].isnan()
    elif wanted[1] < 1e30:
        size = float(d.abs().amax())
        torch.testing.assert_close(got[0].double(), wanted[0], rtol=1e-6, atol=3e-7 * size)
        slack = 1e-6 * size * float(wanted[1].sqrt()) + 1e-12 * size * size * len(x)
        torch.testing.assert_close(got[1].double(), wanted[1], rtol=1e-5, atol=slack)


@pytest.mark.parametrize("n", [1, 2, 5, 127, 128, 1000])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_moments(library: ctypes.CDLL, n: int, offset: float) -> None:
    x = torch.randn(n, generator=torch.Generator().manual_seed(n)) + offset
    out = torch.empty(3)
    library.moments(address(x), ctypes.c_long(n), 8, address(out))
    d = x.double()
    assert out[0] == n
    torch.testing.assert_close(out[1].double(), d.mean(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        out[2].double(), d.var(correction=0) * n, rtol=1e-5 + 3e-8 * offset, atol=1e-6
    )


@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_moments_of_what_is_not_finite(library: ctypes.CDLL, value: float) -> None:
    x = torch.randn(70)
    x[33] = value
    out = torch.empty(3)
    library.moments(address(x), ctypes.c_long(70), 8, address(out))
    assert not out[1].isfinite() and out[2].isnan()
