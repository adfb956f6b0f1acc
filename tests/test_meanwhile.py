"""What a process does without for a while is there again, whichever thread goes last."""

from __future__ import annotations

import gc
import logging
import threading
import warnings

import pytest
import torch
from torch.fx import config
from torch.fx.experimental import proxy_tensor

from refold.backend import inductor
from refold.capture import Example, capture, program
from refold.meanwhile import Meanwhile, uncollected, unwarned

TRACE = logging.getLogger("torch.__trace")


def state() -> tuple[object, ...]:
    from torch._inductor import exc

    # PyTorch 2.11 has no such setting
    notes = [*TRACE.handlers], getattr(config, "do_not_emit_stack_traces", None)
    notes += (proxy_tensor._extract_tensor_metadata,)
    return gc.isenabled(), [*warnings.filters], vars(exc.OperatorIssue)["operator_str"], *notes


@pytest.mark.parametrize("change", [uncollected, unwarned, inductor._texts, program._lean])
def test_threads_that_overlap_leave_it_as_it_was(change: Meanwhile) -> None:
    """The second comes while the first is in it, and goes last."""
    before = state()
    came, gone, failed = threading.Event(), threading.Event(), []

    def second() -> None:
        with change:
            came.set()
            failed.append(not gone.wait(60))
            failed.append(state() == before)

    with change:
        assert state() != before
        other = threading.Thread(target=second)
        other.start()
        assert came.wait(60)
    gone.set()
    other.join()
    assert failed == [False, False]
    assert state() == before


def test_a_capture_writes_down_nothing_that_nobody_hears() -> None:
    """Of a silent logger PyTorch asks whether it has handlers, not whether these hear."""
    asked = []

    class Asks(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            asked.append([*TRACE.handlers])
            return x + 1

    handler = logging.NullHandler()
    TRACE.addHandler(handler)
    try:
        capture(Asks(), Example.of([torch.randn(3, 4)]), training=False)
        assert asked and not any(asked) and handler in TRACE.handlers
    finally:
        TRACE.removeHandler(handler)


def test_it_is_undone_where_the_block_fails() -> None:
    before = state()
    with pytest.raises(ZeroDivisionError), unwarned, uncollected:
        torch.tensor(1 // 0)
    assert state() == before
