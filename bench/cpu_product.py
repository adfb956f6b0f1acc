"""The CPU's matrix product with its epilogue against eager, both sides alternately in one run.

    python bench/cpu_product.py [--seconds 2]

Each line: batch, in -> out, eager, ours, the ratio with its quartiles, both errors against float64.
The module is Linear and ReLU, through the same emission as any other.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from torch import nn

from refold import pipeline
from refold.measure import compare
from refold.pipeline import Options

SHAPES = (
    (2, 4096, 4096),
    (4, 4096, 4096),
    (8, 4096, 4096),
    (64, 4096, 4096),
    (1024, 4096, 4096),
    (1024, 8192, 8192),
    (128, 16384, 16384),
    (200, 512, 384),
    (37, 129, 70),
)


def error(got: torch.Tensor, truth: torch.Tensor) -> float:
    return float((got.double() - truth).norm() / truth.norm())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    target, device = pipeline.target_for("cpu")
    for n, k, m in SHAPES:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(k, m), nn.ReLU())
        x = torch.randn(n, k)
        result = pipeline.run(
            module,
            [x],
            "# Model is bound by the benchmark.",
            "product",
            target,
            device,
            Options(measure=False),
        )
        assert result.text is not None, result.reasons
        fast = pipeline.bind_for_class(result.text, module)
        with torch.no_grad():
            assert pipeline.obstacle(fast, [x]) is None
            t = compare(partial(module, x), partial(fast, x), seconds=args.seconds)
            errors = "not taken (too large)"
            if n * k * m <= 1 << 34:
                w, b = module[0].weight.double(), module[0].bias.double()
                truth = nn.functional.linear(x.double(), w, b).relu()
                errors = f"{error(fast(x), truth):.1e} (eager {error(module(x), truth):.1e})"
        print(
            f"{n:5d}, {k} -> {m}: eager {t.base * 1e3:.3f} ms, ours {t.other * 1e3:.3f} ms,"
            f" ratio {t.ratio:.2f} [{t.low:.2f}, {t.high:.2f}], error {errors}",
            flush=True,
        )


if __name__ == "__main__":
    main()
