"""``python -m refold.judge.rule.calibrate``: how far honest and dishonest products are from eager.

Prints the tables of docs/judge.md: the error ratio (RMSE against float64 over eager's RMSE, the
floor added to both) of y = x @ w.T for one order or precision per row. k must lie between.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch

from refold.judge.rule.compare import tensors
from refold.judge.rule.rows import K_FLOAT32, K_HALF

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def sequential(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """One product after the other."""
    total = torch.zeros(x.shape[0], w.shape[0], device=x.device)
    for k in range(x.shape[1]):
        total.addcmul_(x[:, k : k + 1], w[:, k])
    return total


def split(parts: int) -> Product:
    """Partial sums of equal pieces of K, then one after the other."""

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[0], w.shape[0], device=x.device)
        for a, b in zip(x.chunk(parts, 1), w.chunk(parts, 1), strict=True):
            total += sequential(a, b)
        return total

    return product


def pairwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Halves, quarters, ..."""
    if x.shape[1] <= 16:
        return sequential(x, w)
    half = x.shape[1] // 2
    return pairwise(x[:, :half], w[:, :half]) + pairwise(x[:, half:], w[:, half:])


def cut(bits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Round to ``23 - bits`` bits of mantissa; 13 is TF32."""

    def apply(t: torch.Tensor) -> torch.Tensor:
        whole = t.contiguous().view(torch.int32)
        return ((whole + (1 << (bits - 1))) & -(1 << bits)).view(torch.float32)

    return apply


def operands(change: Callable[[torch.Tensor], torch.Tensor]) -> Product:
    """Narrow operands, float32 sums."""
    return lambda x, w: change(x) @ change(w).t()


def bf16_sums(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Partial sums of 64 kept in bf16."""
    n = x.shape[1] // 64
    total = torch.zeros(x.shape[0], w.shape[0], dtype=torch.bfloat16, device=x.device)
    for a, b in zip(x.chunk(n, 1), w.chunk(n, 1), strict=True):
        total = total + (a @ b.t()).bfloat16()
    return total.float()


def three_fp16(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """High and low fp16 parts, three products, promoted every 64."""

    def parts(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        scale = 2.0 ** (14 - torch.frexp(t.abs().amax(1, keepdim=True)).exponent)
        high = (t * scale).half().float()
        return high, (t * scale - high).half().float(), scale

    (a, b, s), (c, d, r) = parts(x), parts(w)
    total = torch.zeros(x.shape[0], w.shape[0], device=x.device)
    for k in range(0, x.shape[1], 64):
        at = slice(k, k + 64)
        total += b[:, at] @ c[:, at].t() + a[:, at] @ d[:, at].t() + a[:, at] @ c[:, at].t()
    return total / s / r.t()


def rounded(product: Product) -> Product:
    """Half operands, a float32 product, one rounding at the end."""
    return lambda x, w: product(x.float(), w.float()).to(x.dtype)


def half_sums(size: int) -> Product:
    """Partial sums of ``size`` products, added up in the operands' half type."""

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(x.shape[0], w.shape[0], dtype=x.dtype, device=x.device)
        n = x.shape[1] // size
        for a, b in zip(x.chunk(n, 1), w.chunk(n, 1), strict=True):
            total = total + (a.float() @ b.float().t()).to(x.dtype)
        return total

    return product


HALF_PRODUCTS: tuple[tuple[str, bool, Product], ...] = (
    ("sequential", True, rounded(sequential)),
    ("split-K 4", True, rounded(split(4))),
    ("split-K 16", True, rounded(split(16))),
    ("pairwise", True, rounded(pairwise)),
    ("half sums of 256", False, half_sums(256)),
    ("half sums of 64", False, half_sums(64)),
    ("half sums of 16", False, half_sums(16)),
    ("half accumulator", False, half_sums(1)),
)
PRODUCTS: tuple[tuple[str, bool, Product], ...] = (
    ("sequential fp32", True, sequential),
    ("split-K 4", True, split(4)),
    ("split-K 16", True, split(16)),
    ("pairwise", True, pairwise),
    ("three fp16 products, promoted", True, three_fp16),
    ("TF32 operands", False, operands(cut(13))),
    ("fp16 operands", False, operands(lambda t: t.half().float())),
    ("bf16 operands", False, operands(lambda t: t.bfloat16().float())),
    ("bf16 partial sums", False, bf16_sums),
)
DRAWS: tuple[tuple[str, Callable[[torch.Tensor], torch.Tensor]], ...] = (
    ("rand", lambda t: t.uniform_()),
    ("randn 2^-20", lambda t: t.normal_() * 2.0**-20),
    ("randn 1", lambda t: t.normal_()),
    ("randn 2^10", lambda t: t.normal_() * 2.0**10),
)


def ratios(
    k: int,
    draw: Callable[[torch.Tensor], torch.Tensor],
    device: str,
    dtype: torch.dtype = torch.float32,
) -> list[tuple[float, bool]]:
    """Ratio and acceptance of each product, for weights as nn.Linear draws them."""
    torch.manual_seed(k)
    x = draw(torch.empty(96, k)).to(device, dtype)
    w = ((torch.rand(64, k, device=device) * 2 - 1) / k**0.5).to(dtype)
    eager, exact = x @ w.t(), (x.double() @ w.double().t())
    found = []
    for _, _, product in PRODUCTS if dtype == torch.float32 else HALF_PRODUCTS:
        result = tensors("", "", product(x, w).cpu(), eager.cpu(), exact.cpu())
        ratio = result.errors.ratio if result.errors else float("nan")
        found.append((ratio, result.agrees))
    return found


def _print(device: str, sizes: Sequence[int], dtype: torch.dtype) -> None:
    """One table: least .. greatest ratio over K, and how many cases the whole rule accepts."""
    products = PRODUCTS if dtype == torch.float32 else HALF_PRODUCTS
    k = K_FLOAT32 if dtype == torch.float32 else K_HALF
    print(f"{dtype}, k = {k:g}\n\n| product | honest | " + " | ".join(n for n, _ in DRAWS), end="")
    print(" | accepted |\n|---|---|" + "---|" * (len(DRAWS) + 1))
    table = [[ratios(size, draw, device, dtype) for size in sizes] for _, draw in DRAWS]
    for i, (name, honest, _) in enumerate(products):
        columns = [[row[i] for row in column] for column in table]
        cells = [
            f"{min(r for r, _ in column):.2g} .. {max(r for r, _ in column):.2g}"
            for column in columns
        ]
        agreed = sum(ok for column in columns for _, ok in column)
        cells.append(f"{agreed} of {len(DRAWS) * len(sizes)}")
        print(f"| {name} | {'yes' if honest else 'no'} | " + " | ".join(cells) + " |")
    print()


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args(argv).device
    sizes = (256, 1024, 4096, 16384)
    print(f"PyTorch {torch.__version__} on {device}; least .. greatest over K = {sizes}\n")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        _print(device, sizes, dtype)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
