"""The devices: one row each."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from refold.devices.device import Converts, Device
from refold.schedule import batch_pays, batch_pays_on_ampere

_NARROW = (torch.float16, torch.bfloat16)


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16, which oneDNN uses. Where
    nobody can tell, it may."""
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    found = [getattr(torch.cpu, name, lambda: True)() for name in asked]
    return any(found) or platform.machine() not in ("x86_64", "AMD64")


def _cpu_products(x: torch.dtype, weight: torch.dtype, folded: bool) -> bool:
    """All but bfloat16 as it is, where oneDNN has instructions that the kernels do not use. Without
    these it takes five to ten times as long as in float32, and the kernels do not."""
    if x == weight == torch.bfloat16 and multiplies_bfloat16():
        return False
    return x == weight == torch.float64 or torch.float64 not in (x, weight)


def _cuda_products(x: torch.dtype, weight: torch.dtype, folded: bool) -> bool:
    """Operands of one dtype; and 16-bit x with a folded weight, kept as two 16-bit parts."""
    if x in _NARROW and folded:
        return True
    return x == weight != torch.float64


_AMPERE = frozenset({"mma_sync", "cp_async"})
_HOPPER = _AMPERE | {"tma", "wgmma", "clusters", "setmaxnreg", "dependent_launch"}


def _gpu(number: int, double: float, narrow: float, **facts: Any) -> Device:
    """A GPU of capability number / 10. double, narrow: FLOP/s of products of float64 and of 16
    bits."""
    rates = {torch.float64: (double, 1.0), **dict.fromkeys(_NARROW, (narrow, 2.0))}
    given: dict[str, Any] = {
        "flags": (
            f"-gencode=arch=compute_{number},code=sm_{number}",
            f"-gencode=arch=compute_{number},code=compute_{number}",
        ),
        "runs_later": True,
        "batches": batch_pays_on_ampere,
        "features": _AMPERE,
        "crosses": 0.23,  # H200: 14 and 19 MB, read and written, in 14.7 and 18.7 us
    }
    return Device(
        f"cuda:sm_{number}",
        "cuda",
        capability=divmod(number, 10),
        launch=3e-6,
        rates=rates,
        products=_cuda_products,
        adds_bias=True,
        holds_rows=True,
        exponentials=True,
        turns=True,
        **(given | facts),
    )


_ROWS = (
    # two AVX-512 cores: Linear 1024 x 8192 -> 8192 measured in 1.6 s
    # (bfloat16 by the processor's own instructions: 2.4 times that)
    Device(
        "cpu",
        "cpp",
        product_flops=86e9,
        plain_flops=30e9,
        bandwidth=14e9,
        launch=1.5e-6,
        call=3.5e-6,
        run_on="two AVX-512 cores",
        rates={
            torch.float64: (43e9, 1.0),
            torch.float16: (86e9, 1.0),
            torch.bfloat16: (200e9, 2.4),
        },
        products=_cpu_products,
        transposed=1.2,  # 0.97 to 1.4 where many channels meet, 1.3 to 4.7 elsewhere
    ),
    # H200: three fp16 products promoted to float32, sustained; copies at 4.3 TB/s. Values that its
    # second-level cache does not hold are quantized. The architecture's own instructions (sm_90a)
    # run on no other.
    _gpu(
        90,
        double=55e12,
        narrow=650e12,
        product_flops=220e12,
        plain_flops=30e12,
        bandwidth=4.3e12,
        library=0.23,  # 51.5 TFLOP/s
        run_on="H200",
        flags=("-gencode=arch=compute_90a,code=sm_90a",),
        runs_later=False,
        features=_HOPPER,
        batches=batch_pays,
        quantizes=64 << 20,
        # measured on an H100 (docs/decisions/0028)
        converts=Converts(given=3.9e12, back=2.4e12, beforehand=1.85e12, of_many=1.05e12),
        # H100: 1.3 and 2.4 of volumes. Of images 1.02 to 1.08, and a convolution of few places may
        # be of TF32 where the transposed one is not (file 11 of KernelBench's level 2).
        transposed=1.1,
        gathers=True,
    ),
    # A100: the same three products by its peak of 312 TFLOP/s, four fifths of it
    _gpu(
        80,
        double=16e12,
        narrow=250e12,
        product_flops=83e12,
        plain_flops=9.7e12,
        bandwidth=1.6e12,
        library=0.23,  # 19.5 TFLOP/s by its data sheet
        run_on="H200, compiled from PTX",
    ),
    # A10: 125 TFLOP/s of fp16, 31 of fp32, 600 GB/s by its data sheet; four fifths of the products
    _gpu(
        86,
        double=0.5e12,
        narrow=100e12,
        product_flops=33e12,
        plain_flops=15e12,
        bandwidth=0.55e12,
    ),
    # L40S: 362 TFLOP/s of fp16, 91 of fp32, 864 GB/s by its data sheet; four fifths of the products
    _gpu(
        89,
        double=1.4e12,
        narrow=290e12,
        product_flops=96e12,
        plain_flops=45e12,
        bandwidth=0.8e12,
    ),
    # B200, whose own tensor instructions (tcgen05) no kernel uses: mma.sync is taken to do what it
    # does on an H100; 8 TB/s by its data sheet
    _gpu(
        100,
        double=37e12,
        narrow=500e12,
        product_flops=170e12,
        plain_flops=37e12,
        bandwidth=7e12,
    ),
    # RTX 5090: 209 TFLOP/s of fp16 added up in fp32, 105 of fp32, 1.8 TB/s by its data sheet
    _gpu(
        120,
        double=1.6e12,
        narrow=170e12,
        product_flops=56e12,
        plain_flops=52e12,
        bandwidth=1.6e12,
    ),
)

DEVICES: Mapping[str, Device] = MappingProxyType({d.name: d for d in _ROWS})

# what plans are made for that are to run anywhere
ANY = Device(
    "any",
    "cpp",
    product_flops=1.0,
    plain_flops=1.0,
    bandwidth=1.0,
    launch=0.0,
    view=0.0,
    memory=0.0,
)
