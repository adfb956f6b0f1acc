"""``python -m refold.judge.calibrate``: how far honest and dishonest products are from eager.

Prints the table of docs/judge.md: the error ratio (RMSE against float64 over eager's RMSE, the
floor added to both) of y = x @ w.T for one order or precision per row. k must lie between.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import torch

from refold.judge.compare import K_FLOAT32, tensors

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


def ratios(k: int, draw: Callable[[torch.Tensor], torch.Tensor], device: str) -> list[float]:
    """One ratio per product, for weights as nn.Linear draws them."""
    torch.manual_seed(k)
    x = draw(torch.empty(96, k)).to(device)
    w = (torch.rand(64, k, device=device) * 2 - 1) / k**0.5
    eager, exact = x @ w.t(), (x.double() @ w.double().t())
    found = []
    for _, _, product in PRODUCTS:
        got = product(x, w)
        errors = tensors("", "", got.cpu(), eager.cpu(), exact.cpu()).errors
        found.append(errors.ratio if errors else float("nan"))
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args(argv).device
    sizes = (256, 1024, 4096, 16384)
    print(f"k = {K_FLOAT32:g}; PyTorch {torch.__version__} on {device}; least .. greatest over K =")
    print(f"{sizes}\n\n| product | honest | " + " | ".join(n for n, _ in DRAWS) + " |")
    print("|---|---|" + "---|" * len(DRAWS))
    table = {name: [ratios(k, draw, device) for k in sizes] for name, draw in DRAWS}
    for i, (name, honest, _) in enumerate(PRODUCTS):
        cells = []
        for draw, _ in DRAWS:
            column = [row[i] for row in table[draw]]
            cells.append(f"{min(column):.2g} .. {max(column):.2g}")
        print(f"| {name} | {'yes' if honest else 'no'} | " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
