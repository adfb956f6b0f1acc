"""Emitted CUDA modules of the zoo compile for both targets, and say what they cannot run on."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from refold import introspect, pipeline
from refold.convolve import DIRECT, PATCHES, STRIPS, Algorithm, every_schedule
from refold.derive import Options
from refold.devices import DEVICES
from refold.emit.cuda import compile_emitted
from refold.emit.load import load_text
from tests.kernels.test_cuda_compile import resources
from zoo import CASES


@cache
def emitted(name: str, target: str, float32: str = "ieee") -> str:
    torch.manual_seed(0)
    module = CASES[name]()
    back, device = pipeline.target_for(target, float32)
    result = pipeline.run(
        module,
        module.inputs(),
        "# Model is bound.",
        name,
        back,
        device,
        Options(measure=False, accuracy=False),
    )
    assert result.text is not None, result.reasons
    return result.text


# between them every template, plain and tensor-core products, batches of them, sides that lie the
# other way round, several row axes, two inputs, rows in one pass
@pytest.mark.parametrize(
    ("name", "target", "float32"),
    [
        ("TwoInputs", "cuda:sm_80", "ieee"),
        ("GroupAndInstanceNorm", "cuda:sm_80", "ieee"),
        ("BiasFreeMatvec", "cuda:sm_90", "tf32"),
        ("PoolChain", "cuda:sm_90", "ieee"),
        ("OtherWayRound", "cuda:sm_90", "ieee"),
        ("LongRows", "cuda:sm_80", "ieee"),
        ("LargestOfWindows", "cuda:sm_80", "ieee"),
        ("UnevenPooling", "cuda:sm_90", "ieee"),
        ("PooledUpsampling", "cuda:sm_80", "ieee"),  # PyTorch's kernels alone read what is folded
    ],
)
def test_it_compiles(name, target, float32):
    assert compile_emitted(emitted(name, target, float32)) is None


class Convolution(torch.nn.Module):
    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return torch.nn.functional.gelu(self.inner(x))


# of a tile's implicit product: eight words may be spilled, for two blocks a processor
SPILLED = {"broad": 0, "slim": 32}
REGISTERS = {"broad": 255, "slim": 128}
HOPPER = DEVICES["cuda:sm_90"].features


def resources_of(inner, target, way):
    """What the assembler says of a convolution's kernel."""
    back, device = pipeline.target_for(target, "ieee", lambda convolution: way)
    options = Options(measure=False, accuracy=False)
    inputs = [torch.randn(4, inner.in_channels, *(30, 31, 10)[: len(inner.kernel_size)])]
    result = pipeline.run(Convolution(inner), inputs, "#", "Convolution", back, device, options)
    assert result.text is not None, result.reasons
    said: list[str] = []
    assert compile_emitted(result.text, said) is None
    assert "C75" not in said[0], "wgmma is serialised, or a register budget ignored"
    (kernel,) = (k for k in resources(said[0]) if k.kernel.startswith("convolution"))
    return kernel


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("tile", ["broad", "slim"])
@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("channels", [3, 8, 64])
def test_convolutions_compile(channels, kind, tile, target):
    (way,) = (w for w in every_schedule() if w.tile == tile)
    kernel = resources_of(torch.nn.Conv2d(channels, 96, 3), target, Algorithm(way, kind))
    assert kernel.spilled <= SPILLED[tile] and kernel.registers <= REGISTERS[tile]


STRIPS_OF = {  # a tile, a convolution -> bytes that may be spilled
    "broad, 8 channels": ("broad", torch.nn.Conv2d(8, 96, 3), 112),
    "broad, 64 channels": ("broad", torch.nn.Conv2d(64, 96, 3), 112),
    "slim, 64 channels": ("slim", torch.nn.Conv2d(64, 96, 3), 128),
    "slim, 72 channels": ("slim", torch.nn.Conv2d(72, 96, 3), 128),
    "slim, volumes": ("slim", torch.nn.Conv3d(32, 96, 3), 128),
    "joined": ("joined", torch.nn.Conv2d(64, 96, 3), 208),
    "joined volumes": ("joined", torch.nn.Conv3d(8, 96, 3), 208),
}


@pytest.mark.parametrize("case", STRIPS_OF)
def test_convolutions_of_strips_compile(case):
    """setmaxnreg gives them 184 and 72 registers, whatever the kernel's head says."""
    tile, inner, spilled = STRIPS_OF[case]
    (way,) = (w for w in every_schedule(HOPPER) if w.tile == tile and w.kernels is STRIPS)
    kernel = resources_of(inner, "cuda:sm_90", Algorithm(way, "tf32"))
    assert kernel.registers == 128 and kernel.spilled <= spilled


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("kind", ["ieee", "tf32"])
@pytest.mark.parametrize("form", ["transposed", "volumes", "by itself"])
def test_convolutions_of_other_forms_compile(form, kind, target):
    kernels, tile, inner = {
        "transposed": (PATCHES, "features64", torch.nn.ConvTranspose2d(64, 64, 3, 2, 1, 1)),
        "volumes": (PATCHES, "features32", torch.nn.Conv3d(8, 32, 3)),
        "by itself": (DIRECT, "columns", torch.nn.Conv2d(64, 64, 3, groups=64)),
    }[form]
    (way,) = (w for w in every_schedule(HOPPER) if w.kernels is kernels and w.tile == tile)
    kernel = resources_of(inner, target, Algorithm(way, kind))
    assert kernel.spilled <= 16  # of two joined phases four words, for two blocks a processor
    assert kernel.registers <= (210 if (form, kind) == ("transposed", "ieee") else 128)


@pytest.mark.parametrize(
    ("name", "struct", "blocks"),
    [
        ("Attention", "Rows2", 2),  # a softmax keeps the shifted row, then its exponentials
        ("TransformerBlock", "Rows0", 2),  # a layer norm reads two vectors at its end
        ("BooleanMasks", "Rows1", 1),  # keeps the row beside its exponentials
        ("TwoReadersOfOneProduct", "Rows1", 1),  # a sine
    ],
)
def test_blocks_that_hold_rows(name, struct, blocks):
    """As many as have registers enough: `test_cuda_rows_compile` and ptxas say whether they do."""
    text = emitted(name, "cuda:sm_90")
    body = text.partition(f"struct {struct} : RowsBody {{")[2].partition("\n};")[0]
    assert body and ("kMinBlocks = 1;" in body) == (blocks == 1), "the header says two"


class WideHead(torch.nn.Module):
    """So many columns that no schedule splits K, and nothing that is reduced."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.head = torch.nn.Linear(64, width, dtype=dtype)

    def forward(self, x):
        return torch.relu(self.head(x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_products_on_hopper_are_given_memory(dtype):
    """Blocks that share the tiles left over leave parts of them there."""
    back, device = pipeline.target_for("cuda:sm_90", "ieee")
    inputs = [torch.randn(300, 64, dtype=dtype)]
    module = WideHead(32768, dtype)
    result = pipeline.run(
        module, inputs, "#", "Head", back, device, Options(measure=False, accuracy=False)
    )
    assert result.text is not None, result.reasons
    assert "rf_work[0]" in result.text.partition("_refold_kernels.matmul0(")[2]


def test_an_error_in_the_source_is_named():
    text = emitted("BiasFreeMatvec", "cuda:sm_90").replace("struct Row", "struckt Row")
    problem = compile_emitted(text)
    assert problem is not None and "error" in problem


@pytest.mark.skipif(torch.cuda.is_available(), reason="speaks of machines without a GPU")
def test_without_a_gpu_the_original_is_taken_and_the_reason_said():
    module = CASES["BiasFreeMatvec"]()
    text = emitted("BiasFreeMatvec", "cuda:sm_90")
    fast = pipeline.adopt(load_text(text, {"Model": type(module)}).ModelNew, module)
    x = torch.randn(5, 300)
    with torch.no_grad():
        assert torch.equal(fast(x), module(x))
        assert "PyTorch finds no CUDA device" in str(introspect.fallback_reason(fast, [x]))
