"""The real kernels with a line changed: what their tests say of it on the emulator.

What guards one thread from another is seldom wrong on a GPU even where it is missing.
"""

from __future__ import annotations

import ctypes
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from tests.emulator.translate import compile_source, link
from tests.gpu.emitted import Kernel, draw, emitted, named, source
from tests.gpu.library import KERNELS, Product
from tests.gpu.products import empty, error, make, plain, sides

SCHEDULES = {
    "tall": "Schedule<Ieee, Tall>",
    "wide": "Schedule<Tf32, Wide>",
    "small_4": "Schedule<Ieee, Small, 4>",
    "generic": "Generic<Ieee>",
    "generic_4": "Generic<Ieee, 4>",
}
# header, line (its first occurrence from a text on), instead -> the schedule whose product is wrong
PRODUCTS = {
    "a stage is read before it is full": (
        "mainloop_sm90.cuh",
        "mbarrier_wait(full + kMbarrierBytes * (stage + p), phase);",
        ";",
        "tall",
    ),
    "a stage is filled while it is read": (
        "matmul_sm90.cuh",
        "mbarrier_wait(empty + kMbarrierBytes * stage, phase);",
        ";",
        "tall",
    ),
    "sums are promoted before they are there": (
        "mainloop_sm90.cuh",
        "  wgmma_wait_group<0>();\n#pragma unroll\n  for (int i = 0; i < 64; i++) {",
        "#pragma unroll\n  for (int i = 0; i < 64; i++) {",
        "tall",
    ),
    "a stage is left before its products are done": (
        "mainloop_sm90.cuh",
        "wgmma_wait_group<1>();",
        ";",
        "wide",
    ),
    "shares are added before all are there": (
        "tile_scheduler_sm90.cuh",
        "while (here < S::kSplitK);",
        "while (here < 1);",
        "small_4",
    ),
    "the last share is not waited for by its block": (
        "tile_scheduler_sm90.cuh",
        "  named_barrier_sync(kConsumerBarrier, kConsumerThreads);\n  const bool finishes",
        "  const bool finishes",
        "small_4",
    ),
    "a stage is read while it is copied": (
        "matmul_sm80.cuh",
        "cp_async_wait<S::kStages - 2>();",
        "cp_async_wait<S::kStages - 1>();",
        "generic",
    ),
    "parts are added before the last block has them": (
        "matmul_sm80.cuh",
        "*arrival = atomicInc(l.splitk_arrivals + tile, S::kSplitK - 1);",
        "*arrival = blockIdx.x % S::kSplitK;",
        "generic_4",
    ),
}
# the same of rows: the model, and the shape of its space
ROWS = {
    "warps read parts before they are there": (
        "block.cuh",
        "  named_barrier_sync(barrier, threads);\n",
        "",
        ("Softmax", (9, 1024)),
    ),
    "the block of the highest number is taken for the last": (
        "block.cuh",
        "if (threadIdx.x == 0) arrival = atomicInc(arrivals, blocks - 1);",
        "if (threadIdx.x == 0) arrival = blockIdx.x % blocks;",
        ("Softmax", (2, 140000)),
    ),
    "an empty part weighs infinity times zero": (
        "monoid.cuh",
        "delta * (delta * (p.w[0] * share))",
        "delta * delta * p.w[0] * share",
        ("LongLayerNorm", (5, 7)),
    ),
}


def changed(header: str, old: str, new: str, folder: Path) -> list[str]:
    """The include paths of a copy of the kernels with one text changed."""
    for path in (p for kernels in KERNELS for p in kernels.glob("*.cuh")):
        text = path.read_text()
        if path.name == header:
            assert old in text, f"{header} has no {old!r} any more"
            text = text.replace(old, new, 1)
        (folder / path.name).write_text(text)
    return [f"-I{folder}"]


def compiled(text: str, folder: Path, change: tuple[str, str, str] | None = None) -> Path:
    """The library of a CUDA file, with one text of a header changed."""
    folder.mkdir()
    file = folder / "kernels.cu"
    file.write_text(text)
    includes = changed(*change, folder) if change else []
    compile_source(file, folder / "kernels.o", flags=includes)
    link([folder / "kernels.o"], folder / "kernels.so")
    return folder / "kernels.so"


@pytest.fixture(scope="module")
def libraries(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """Each schedule's and each fault's that a chosen test takes."""
    # the tests' own library, which splits operands here, keeps the device that it saw first
    plain("ieee_tall", *make(3, 5, 7))
    folder = tmp_path_factory.mktemp("kernels")
    own = [i for i in request.session.items if i.path == request.path]
    chosen = {
        i.callspec.params[k] for i in own for k in ("name", "fault") if k in i.callspec.params
    }
    wanted: list[tuple[str, str, tuple[str, str, str] | None]]
    wanted = [(name, product_text(name), None) for name in SCHEDULES]
    wanted += [(n, product_text(f[3]), f[:3]) for n, f in PRODUCTS.items()]
    wanted += [(n, source(f[3][0]), f[:3]) for n, f in ROWS.items()]
    wanted = [w for w in wanted if w[0] in chosen]
    with ThreadPoolExecutor(2) as pool:
        found = [
            pool.submit(compiled, text, folder / str(i), change)
            for i, (_, text, change) in enumerate(wanted)
        ]
        return {name: f.result() for (name, _, _), f in zip(wanted, found, strict=True)}


def loaded(path: Path, folder: Path) -> ctypes.CDLL:
    """A library that no other test has loaded: its device is this test's."""
    return ctypes.CDLL(str(shutil.copy(path, folder)))


def product_is_right(library: ctypes.CDLL, name: str) -> bool:
    x, w = make(150, 140, 230) if name.startswith("generic") else make(300, 270, 400)
    out = empty(x.shape[0], w.shape[0])
    mode = "tf32" if name == "wide" else "ieee"
    product = Product("product", *sides(mode, x, w), (), (out,), library)
    try:
        for _ in range(2):
            product()
            ref = x.double() @ w.double().T
            if not torch.isfinite(out).all() or error(out, ref) > (
                1e-3 if mode == "tf32" else 5e-7
            ):
                return False
    except RuntimeError:
        return False
    return True


def product_text(name: str) -> str:
    launch = "launch_sm80.cuh" if name.startswith("generic") else "launch_sm90.cuh"
    return (
        f'#include "bodies.cuh"\n#include "{launch}"\nusing namespace rf;\n'
        f"RF_ENTRY(product, Copy, {SCHEDULES[name]})\n"
    )


# of five processors each has several tiles, and some share them
@pytest.mark.parametrize("processors", [132, 5])
@pytest.mark.parametrize("name", SCHEDULES)
def test_products_as_they_are(
    libraries: dict[str, Path],
    name: str,
    processors: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMULATOR_PROCESSORS", str(processors))
    assert product_is_right(loaded(libraries[name], tmp_path), name)


@pytest.mark.parametrize("fault", PRODUCTS)
def test_products_with_a_fault(
    libraries: dict[str, Path], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMULATOR_PROCESSORS", "5")
    assert not product_is_right(loaded(libraries[fault], tmp_path), PRODUCTS[fault][3])


def rows_are_right(model: str, shape: tuple[int, ...], library: ctypes.CDLL | None) -> bool:
    (e,) = emitted(model)
    values = named(e, *shape)
    operands = draw(e, values)
    if shape == (5, 7):  # so large that its square is infinite
        next(t for t in operands.values() if t.shape[-2:] == shape)[..., 1, 3] = 3e38
    kernel = Kernel(e, values, operands, library=library)
    for _ in range(3):
        for out, ref in zip(kernel(), kernel.evaluate(torch.float32), strict=True):
            if not torch.allclose(out, ref, rtol=1e-3, atol=1e-4):
                return False
    return True


@pytest.mark.parametrize("fault", ROWS)
def test_rows_with_a_fault(libraries: dict[str, Path], fault: str) -> None:
    model, shape = ROWS[fault][3]
    assert rows_are_right(model, shape, None)
    assert not rows_are_right(model, shape, ctypes.CDLL(str(libraries[fault])))
