"""Kernels that start beside the end of the one before: the same bits, however busy the GPU is."""

from __future__ import annotations

import pytest
import torch
from torch.utils._pytree import tree_leaves

from refold import introspect, pipeline
from refold.emit.load import load_text
from zoo import CASES

from .test_emitted import emitted, on_gpu, to_gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("target", ["cuda:sm_90", "cuda:sm_80"])
@pytest.mark.parametrize("name", ["Residual", "RmsNormAndGlu", "CausalAttention", "SumChain"])
def test_the_same_bits_beside_other_work(name: str, target: str) -> None:
    """A load that was moved before the wait for the kernel before reads what was there."""
    torch.manual_seed(0)
    module = on_gpu(CASES[name]).eval()
    inputs = to_gpu(module.inputs())
    namespace = load_text(emitted(module, inputs, target), {"Model": type(module)})
    fast = pipeline.adopt(namespace.ModelNew, module)
    beside, busy = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    with torch.no_grad():
        assert introspect.fallback_reason(fast, inputs) is None
        wanted = tree_leaves(fast(*inputs))
        for _ in range(300):
            with torch.cuda.stream(beside):
                torch.mm(busy, busy)
            got = tree_leaves(fast(*inputs))
            assert all(torch.equal(w, g) for w, g in zip(wanted, got, strict=True))
