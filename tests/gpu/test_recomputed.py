"""Cheap values that several kernels compute, as nvcc compiles them: to the same bits."""

from __future__ import annotations

import copy

import pytest
import torch

from refold import introspect, pipeline
from test_models import written
from test_recomputed import of_equal_rows

from .machine import DEVICE

pytestmark = pytest.mark.gpu


def test_equal_rows_stay_exact() -> None:
    """A product that one kernel fuses with a sum would leave the mean of another's values."""
    net, x = of_equal_rows()
    _, result = written(net, [x], "cuda:sm_90", convolutions=lambda c: None)
    module = net.to(DEVICE)
    fast = pipeline.bind_for_class(result.text, module)
    given = x.to(DEVICE)
    with torch.no_grad():
        assert introspect.fallback_reason(fast, [given]) is None
        got = fast(given).cpu()
        truth = copy.deepcopy(module).cpu().double()(x.double())
    torch.testing.assert_close(got.isnan(), truth.isnan())
